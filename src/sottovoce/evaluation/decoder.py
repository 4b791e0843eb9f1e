"""Decoders: from the scores of tokens to the best path, which has a token or a blank for every output.

A path gives the text, once repeats and blanks are removed, and the time of every token.
"""

from itertools import groupby

from torch import Tensor

from sottovoce.data.text import BLANK_ID
from sottovoce.evaluation.transcripts import BestPath


class Decoder:
    """Finds the best path through the scores (outputs, tokens) of an utterance."""

    def path(self, scores: Tensor) -> BestPath:
        """Return the token of every output; 0 is the blank."""
        raise NotImplementedError

    def decode(self, scores: Tensor, outputs: Tensor) -> list[list[int]]:
        """Return the tokens of every row of a batch (rows, outputs, tokens), whose rows have these many outputs."""
        rows = zip(scores, outputs.tolist(), strict=True)
        return [tokens_of(self.path(row[:count])) for row, count in rows]


class GreedyDecoder(Decoder):
    """Takes the best token of every output, whatever comes before and after it."""

    def path(self, scores: Tensor) -> BestPath:
        """Return the best token of every output."""
        best: BestPath = scores.argmax(dim=-1).cpu().numpy()
        return best


def tokens_of(path: BestPath) -> list[int]:
    """Return the tokens of a path, repeats and blanks removed."""
    return [token for token, _ in groupby(path.tolist()) if token != BLANK_ID]
