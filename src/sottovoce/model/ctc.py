"""The CTC loss, summed over labels and averaged over utterances, and greedy decoding."""

import torch
import torch.nn.functional as F  # noqa: N812 - everyone's name for it
from torch import Tensor

from sottovoce.data.text import BLANK_ID


def ctc_loss(scores: Tensor, outputs: Tensor, targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Return the loss of every row: minus the log-probability of its whole target (not divided by its length).

    A store only holds utterances whose target fits its outputs, so an infinite loss is an error and is not hidden.
    """
    log_probs = F.log_softmax(scores.float() if scores.dtype != torch.float64 else scores, dim=-1).transpose(0, 1)
    return F.ctc_loss(log_probs, targets, outputs, target_lengths, blank=BLANK_ID, reduction="none")


def greedy(scores: Tensor, outputs: Tensor) -> list[list[int]]:
    """Return the best token of every output with repeats and blanks removed, row by row."""
    best = scores.argmax(dim=-1).cpu()
    rows = []
    for row, count in zip(best, outputs.tolist(), strict=True):
        collapsed = torch.unique_consecutive(row[:count])
        rows.append([token for token in collapsed.tolist() if token != BLANK_ID])
    return rows
