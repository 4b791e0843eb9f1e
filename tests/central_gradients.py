"""A worker that computes the gradients of central steps and leaves those that its process has."""

import torch

from sottovoce.central import Preparing, step_gradient, steps_from
from sottovoce.config import parse_setting, resolve
from sottovoce.data.store import Store
from sottovoce.model.recogniser import Recogniser
from trainings import SMALL_MODEL

# Dropout is off: it is the only thing that depends on how micro-batches are cut.
CONFIG = resolve("tiny", *map(parse_setting, (*SMALL_MODEL, "model.dropout=0"))).config
PER_STEP = 2


def leave_gradients(group, path, folder):
    """Write the loss and the gradient of two steps: one with a few utterances for everyone, one with three in all."""
    store = Store.open(path)
    recogniser = Recogniser.make(CONFIG.model, store.token_set).initialise(0)
    preparing = Preparing(store, CONFIG.specaugment, 0, recogniser.encoder, group, PER_STEP)
    rows = torch.arange(len(store)).numpy()
    _, full = next(steps_from(0, rows, store.frames_of(rows), 8.0, PER_STEP, 0))
    left = {}
    for number, micro in enumerate((full, [rows[:2], rows[2:3]])):
        loss = step_gradient(recogniser, store, preparing.step(number, micro), group)
        left[number] = (loss, recogniser.flat.gradient.clone())
    torch.save(left, folder / f"{group.size}-{group.rank}.pt")
