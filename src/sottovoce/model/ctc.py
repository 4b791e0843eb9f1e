"""The CTC loss, summed over labels and averaged over utterances, and greedy decoding."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor

from sottovoce.data.text import BLANK_ID

Emission = tuple[int, int]  # the output at which a token begins, and the token
# From scores (rows, outputs, tokens) and the number of outputs of each row to the tokens of each row.
Decode = Callable[[Tensor, Tensor], list[list[Emission]]]


def ctc_loss(scores: Tensor, outputs: Tensor, targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Return the loss of every row: minus the log-probability of its whole target (not divided by its length).

    A store only holds utterances whose target fits its outputs, so an infinite loss is an error and is not hidden.
    """
    log_probs = F.log_softmax(scores.float() if scores.dtype != torch.float64 else scores, dim=-1).transpose(0, 1)
    return F.ctc_loss(log_probs, targets, outputs, target_lengths, blank=BLANK_ID, reduction="none")


def greedy_path(scores: Tensor, outputs: Tensor) -> list[list[Emission]]:
    """Return the best token of every output with repeats and blanks removed, row by row, and where each begins."""
    best = scores.argmax(dim=-1).cpu()
    rows = []
    for row, count in zip(best, outputs.tolist(), strict=True):
        path = row[:count]
        begins = path != BLANK_ID
        begins[1:] &= path[1:] != path[:-1]
        places = begins.nonzero().squeeze(1)
        rows.append(list(zip(places.tolist(), path[places].tolist(), strict=True)))
    return rows


def greedy(scores: Tensor, outputs: Tensor) -> list[list[int]]:
    """Return the tokens of `greedy_path` alone."""
    return [[token for _, token in row] for row in greedy_path(scores, outputs)]
