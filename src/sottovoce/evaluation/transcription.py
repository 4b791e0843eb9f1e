"""Text from audio files of any length, format and rate, with the time of every word.

A file is read in windows (`windows.py`). Of every window the outputs in the middle are kept, so that every output has
context before and after it. Windows of one or several files are computed in batches of similar length; the scores of a
window do not depend on the others of its batch. A file that fits into one window is recognised exactly as in
evaluation. Beam search decodes the outputs that are kept of a piece together, not window by window.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sottovoce.data.batching import Batching, by_length
from sottovoce.errors import DataError
from sottovoce.evaluation.decoder import Decoder, GreedyDecoder
from sottovoce.evaluation.decoding import Decoding
from sottovoce.evaluation.transcripts import BestPath, HeardPiece, OutputAlphabet, Transcript
from sottovoce.evaluation.windows import HOP_FRAMES, OVERLAP_FRAMES, WINDOW_FRAMES, AudioWindow, FilePiece, pieces_of
from sottovoce.features import logmel
from sottovoce.memory import keep_freed_memory
from sottovoce.model.hardware import Hardware
from sottovoce.model.recogniser import Recogniser, load_recogniser

BATCH_SECONDS = 60.0  # of windows that are computed together; longer batches are no faster


def transcribe(recogniser: Recogniser, path: Path, decoder: Decoder | None = None) -> Transcript:
    """Return the words spoken in a file; raise DataError where it is not audio."""
    heard = []
    for piece in pieces_of(path):
        heard += hear(recogniser, [piece], decoder)
        if (error := heard[-1].error) is not None:
            raise DataError(error)
    return alphabet_of(recogniser).transcript(str(path), heard)


def alphabet_of(recogniser: Recogniser) -> OutputAlphabet:
    """Return what is needed to write down what a model has heard."""
    return OutputAlphabet(recogniser.token_set.tokens, recogniser.encoder.output_stride)


def hear_with(model: Path, decoding: Decoding, pieces: Sequence[FilePiece]) -> tuple[OutputAlphabet, list[HeardPiece]]:
    """Return what is heard in each piece by the model at a place, which a process loads once, and how to write it down.

    It computes with a single thread.
    """
    recogniser, decoder = _loaded(model, decoding)
    return alphabet_of(recogniser), hear(recogniser, pieces, decoder)


@lru_cache(maxsize=1)
def _loaded(model: Path, decoding: Decoding) -> tuple[Recogniser, Decoder]:
    torch.set_num_threads(1)
    keep_freed_memory()
    recogniser = load_recogniser(model, Hardware().open())
    return recogniser, decoding.open(recogniser.token_set)


def hear(recogniser: Recogniser, pieces: Sequence[FilePiece], decoder: Decoder | None = None) -> list[HeardPiece]:
    """Return what is heard in each piece, in order; a piece that cannot be read says why.

    Raise DataError where the model gives scores that are not finite.
    """
    recogniser.encoder.eval()
    heard = [_Hearing() for _ in pieces]
    waiting: list[tuple[_Hearing, AudioWindow]] = []
    for hearing, window in _read(pieces, heard):
        waiting.append((hearing, window))
        if sum(len(window.samples) for _, window in waiting) >= BATCH_SECONDS * logmel.SAMPLE_RATE_HZ:
            _listen(recogniser, waiting)
            waiting = []
    _listen(recogniser, waiting)
    decoder = decoder or GreedyDecoder()
    return [hearing.result(decoder) for hearing in heard]


class _Hearing:
    """What has been heard of one piece so far."""

    def __init__(self) -> None:
        self.kept: dict[
            int, tuple[Tensor, BestPath]
        ] = {}  # by window: the scores of its kept outputs, and their frames
        self.end = 0
        self.error: str | None = None

    def keep(self, window: AudioWindow, scores: Tensor, stride: int) -> None:
        """Keep the outputs of a window that neither neighbour has more context for."""
        begin = 0 if window.number == 0 else math.ceil(OVERLAP_FRAMES / 2 / stride)
        end = len(scores) if window.ends else math.ceil((WINDOW_FRAMES - OVERLAP_FRAMES / 2) / stride)
        kept = scores[begin:end]
        if not bool(torch.isfinite(kept).all()):
            raise DataError("The model's scores are not finite numbers: its parameters are damaged. Use another model.")
        places = np.arange(begin, begin + len(kept))
        self.kept[window.number] = kept, window.number * HOP_FRAMES + stride * places

    def result(self, decoder: Decoder) -> HeardPiece:
        """Return the best path."""
        none = np.zeros(0, np.int64)
        if self.error is not None or not self.kept:
            return HeardPiece(none, none, self.end, self.error)
        scores, frames = zip(*(self.kept[number] for number in sorted(self.kept)), strict=True)
        return HeardPiece(decoder.path(torch.cat(scores)), np.concatenate(frames), self.end)


def _read(pieces: Sequence[FilePiece], heard: Sequence[_Hearing]) -> Iterator[tuple[_Hearing, AudioWindow]]:
    """Yield the windows of all pieces; note where one ends and why another cannot be read."""
    for piece, hearing in zip(pieces, heard, strict=True):
        try:
            for window in piece.read():
                hearing.end = window.end
                yield hearing, window
        except DataError as error:
            hearing.error = str(error)


def _listen(recogniser: Recogniser, waiting: Sequence[tuple[_Hearing, AudioWindow]]) -> None:
    """Compute the scores of windows, in batches of similar length."""
    features = [logmel.features(window.samples) for _, window in waiting]
    frames = np.array([len(one) for one in features], np.int64)
    rows = np.flatnonzero(frames)  # a window shorter than a frame has none
    planned = by_length(rows, frames[rows], Batching(seconds=BATCH_SECONDS))
    pads, device = recogniser.encoder.computes_padding, recogniser.flat.theta.device
    for batch in [micro for one in planned for micro in (one.micro if pads else [one.rows])]:
        padded = np.zeros((len(batch), int(frames[batch].max()), logmel.BINS), np.float16)
        for place, row in enumerate(batch):
            padded[place, : frames[row]] = features[row]
        with torch.inference_mode():
            lengths = torch.from_numpy(frames[batch]).to(device)
            scores, outputs = recogniser.encoder(torch.from_numpy(padded).float().to(device), lengths)
        for place, row in enumerate(batch):
            hearing, window = waiting[row]
            hearing.keep(window, scores[place, : int(outputs[place])], recogniser.encoder.output_stride)
