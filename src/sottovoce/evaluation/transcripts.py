"""Transcripts: the words of an audio file with their times, made of what was heard piece by piece. No torch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sottovoce.data.text import BLANK_ID, BOUNDARY_ID
from sottovoce.features import logmel

BestPath = npt.NDArray[np.int64]  # the token or blank of every output


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


@dataclass(frozen=True, eq=False)
class HeardPiece:
    """The best path through the outputs of a piece: a token or a blank for every output, and its frame in the file."""

    path: BestPath
    frames: BestPath
    end: int  # the sample after the last one that was read
    error: str | None = None  # why the file could not be read


@dataclass(frozen=True)
class OutputAlphabet:
    """What a model's tokens are, and how many frames one of its outputs has."""

    tokens: tuple[str, ...]
    output_stride: int

    def transcript(self, file: str, pieces: Sequence[HeardPiece]) -> Transcript:
        """Return the words of all pieces of a file."""
        seconds = max((piece.end for piece in pieces), default=0) / logmel.SAMPLE_RATE_HZ
        return Transcript(file, seconds, list(self._words(_spoken(pieces))))

    def _words(self, spoken: Iterable[tuple[int, int]]) -> Iterator[Word]:
        """Cut tokens into words at the boundaries."""
        letters: list[tuple[int, int]] = []
        for frame, token in [*spoken, (0, BOUNDARY_ID)]:
            if token != BOUNDARY_ID:
                letters.append((frame, token))
            elif letters:
                ends = (letters[0][0], letters[-1][0] + self.output_stride)
                start, end = (round(frame / logmel.FRAMES_PER_SECOND, 2) for frame in ends)
                yield Word("".join(self.tokens[letter] for _, letter in letters), start, end)
                letters = []


def _spoken(pieces: Sequence[HeardPiece]) -> Iterator[tuple[int, int]]:
    """Yield (frame, token) with repeats and blanks removed, also where pieces meet."""
    previous = BLANK_ID
    for piece in pieces:
        for frame, token in zip(piece.frames.tolist(), piece.path.tolist(), strict=True):
            if token not in (previous, BLANK_ID):
                yield frame, token
            previous = token
