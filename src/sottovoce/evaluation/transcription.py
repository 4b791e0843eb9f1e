"""Text from audio files of any length, format and rate, with the time of every word.

A file is read in blocks and recognised in windows of 18 s that overlap by 3 s. Of every window the outputs in the
middle are kept, so that every output has context before and after it. Memory does not grow with the length of the file.
A file that fits into one window is recognised as a whole, exactly as in evaluation. Beam search decodes the outputs
that are kept, not window by window.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
import torch
from torch import Tensor

from sottovoce.data.text import BLANK_ID, BOUNDARY_ID
from sottovoce.errors import DataError
from sottovoce.evaluation.decoder import Decoder, GreedyDecoder
from sottovoce.features import logmel
from sottovoce.model.recogniser import Recogniser

Samples = npt.NDArray[np.float32]

WINDOW_FRAMES = 1800
OVERLAP_FRAMES = 300
_BLOCK_SECONDS = 10
_WINDOW_SAMPLES = (WINDOW_FRAMES - 1) * logmel.STRIDE_SAMPLES + logmel.WINDOW_SAMPLES
_HOP_SAMPLES = (WINDOW_FRAMES - OVERLAP_FRAMES) * logmel.STRIDE_SAMPLES


@dataclass(frozen=True)
class Word:
    """A word and its time in the file, in seconds."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcript:
    """The words of one audio file."""

    file: str
    seconds: float
    words: list[Word]

    @property
    def text(self) -> str:
        """The words in one line."""
        return " ".join(word.word for word in self.words)


def transcribe(recogniser: Recogniser, path: Path, decoder: Decoder | None = None) -> Transcript:
    """Return the words spoken in a file; raise DataError where it is not audio."""
    recogniser.encoder.eval()
    stride = recogniser.encoder.output_stride
    spoken: list[tuple[int, int]] = []  # (frame, token), repeats and blanks removed
    previous = BLANK_ID
    place = 0
    heard = _Heard()
    if not path.is_file():
        raise DataError(f"{path} cannot be read: there is no such file. Check the path.")
    try:
        for tokens in (decoder or GreedyDecoder()).paths(_kept_scores(recogniser, path, heard)):
            for token in tokens.tolist():
                if token not in (previous, BLANK_ID):
                    spoken.append((place * stride, token))
                previous, place = token, place + 1
    except (soundfile.SoundFileError, OSError) as error:
        reason = getattr(error, "error_string", None) or str(error)  # libsndfile's own words, without the path
        raise DataError(f"{path} cannot be read: {' '.join(reason.split()).rstrip('.')}. Give an audio file.") from None
    return Transcript(str(path), heard.seconds, _words(spoken, recogniser.token_set.tokens, stride))


@dataclass
class _Heard:
    """How much of a file has been read."""

    seconds: float = 0.0


def _kept_scores(recogniser: Recogniser, path: Path, heard: _Heard) -> Iterator[Tensor]:
    """Yield the scores of a file's outputs one after another, window by window; windows overlap, outputs do not."""
    stride = recogniser.encoder.output_stride
    for first, window, ends in _windows(_blocks(path)):
        scores = _listen(recogniser, window)
        begin = 0 if first == 0 else math.ceil(OVERLAP_FRAMES / 2 / stride)
        end = len(scores) if ends else math.ceil((WINDOW_FRAMES - OVERLAP_FRAMES / 2) / stride)
        heard.seconds = (first + len(window)) / logmel.SAMPLE_RATE_HZ
        yield scores[begin:end]


def _blocks(path: Path) -> Iterator[Samples]:
    """Yield the file piece by piece, as mono at 16 kHz."""
    with soundfile.SoundFile(path) as file:
        rate = int(file.samplerate)
        resampler = None if rate == logmel.SAMPLE_RATE_HZ else soxr.ResampleStream(rate, logmel.SAMPLE_RATE_HZ, 1)
        while len(block := file.read(_BLOCK_SECONDS * rate, dtype="float32", always_2d=True)):
            mono = block.mean(axis=1, dtype=np.float32)
            yield mono if resampler is None else resampler.resample_chunk(mono)
        if resampler is not None:
            yield resampler.resample_chunk(np.zeros(0, dtype=np.float32), last=True)


def _windows(blocks: Iterator[Samples]) -> Iterator[tuple[int, Samples, bool]]:
    """Yield (first sample, samples, whether it is the last) of every window; neighbours overlap."""
    held = np.zeros(0, dtype=np.float32)
    first = 0
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) > _WINDOW_SAMPLES:  # more follows, so this window is not the last
            yield first, held[:_WINDOW_SAMPLES], False
            held, first = held[_HOP_SAMPLES:], first + _HOP_SAMPLES
    if len(held):
        yield first, held, True


def _listen(recogniser: Recogniser, samples: Samples) -> Tensor:
    """Return the scores of every output of a window."""
    features = torch.from_numpy(logmel.features(samples).astype(np.float32))
    if len(features) == 0:
        return torch.zeros(0, len(recogniser.token_set.tokens))
    device = recogniser.flat.theta.device
    with torch.inference_mode():
        scores, _ = recogniser.encoder(features[None].to(device), torch.tensor([len(features)], device=device))
    first: Tensor = scores[0]
    return first


def _words(spoken: list[tuple[int, int]], tokens: tuple[str, ...], stride: int) -> list[Word]:
    """Cut tokens into words at the boundaries."""
    words: list[Word] = []
    letters: list[tuple[int, int]] = []
    for place, token in [*spoken, (0, BOUNDARY_ID)]:
        if token != BOUNDARY_ID:
            letters.append((place, token))
        elif letters:
            start, end = (frame / logmel.FRAMES_PER_SECOND for frame in (letters[0][0], letters[-1][0] + stride))
            words.append(Word("".join(tokens[letter] for _, letter in letters), round(start, 2), round(end, 2)))
            letters = []
    return words
