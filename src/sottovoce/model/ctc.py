"""The CTC loss, summed over labels and averaged over utterances."""

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
