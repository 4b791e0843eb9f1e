"""Recognising the utterances of a store, and counting the errors. Every utterance counts.

Decoding is greedy unless `decoding` says otherwise. No utterance is dropped for its length: an utterance longer than a
batch is a batch of its own. Nor for its letters: where a text has characters that the model cannot write, errors are
counted against the full text (`Store.full_references`); the loss is that of the rest.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from sottovoce.data.batching import Batching, by_length, load
from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.evaluation.decoder import Decoder
from sottovoce.evaluation.decoding import GREEDY, Decoding
from sottovoce.evaluation.utterances import ScoredUtterance, compare
from sottovoce.model.ctc import ctc_loss
from sottovoce.model.recogniser import Recogniser
from sottovoce.processes import Progress, no_progress

Rows = npt.NDArray[np.int64]


def evaluate(
    recogniser: Recogniser,
    store: Store,
    rows: Rows,
    group: Group,
    *,
    batch_seconds: float = 120.0,
    decoding: Decoding = GREEDY,
    progress: Progress = no_progress,
) -> list[ScoredUtterance]:
    """Recognise every row and return the results in the order of the rows; all processes share the work."""
    recogniser.require_store(store)
    if len(rows) == 0:
        raise DataError(f"No utterance of {store.path} was selected: there is nothing to evaluate. Select some.")
    planned = by_length(rows, store.frames_of(rows), Batching(seconds=batch_seconds))
    pads = recogniser.encoder.computes_padding
    batches = [micro for batch in planned for micro in (batch.micro if pads else [batch.rows])]
    # Longest first, dealt out in turn: the processes finish together.
    batches.sort(key=lambda micro: (-int(store.frames_of(micro).max()) * len(micro), int(micro[0])))
    own: list[ScoredUtterance] = []
    decoder = decoding.open(recogniser.token_set)
    recogniser.encoder.eval()
    for number, micro in enumerate(batches):
        if number % group.size == group.rank:
            own += _recognise(recogniser, store, micro, decoder)
            progress("evaluation", number + 1, len(batches))
    recogniser.encoder.train()
    by_row = {utterance.row: utterance for part in group.gather(own) for utterance in part}
    return [by_row[int(row)] for row in rows]


def _recognise(recogniser: Recogniser, store: Store, rows: Rows, decoder: Decoder) -> Iterator[ScoredUtterance]:
    batch = load(store, rows)
    device = recogniser.flat.theta.device
    with torch.inference_mode():
        features, frames = torch.from_numpy(batch.features).to(device), torch.from_numpy(batch.frames).to(device)
        scores, outputs = recogniser.encoder(features, frames)
        targets, lengths = torch.from_numpy(batch.targets).to(device), torch.from_numpy(batch.target_lengths).to(device)
        losses = ctc_loss(scores, outputs, targets, lengths).tolist()
        if not all(map(math.isfinite, losses)):
            raise DataError("The model's loss is not a finite number: its parameters are damaged. Use another model.")
        decoded = decoder.decode(scores, outputs)
    for place, row in enumerate(map(int, rows)):
        reference = store.full_references.get(row) or recogniser.token_set.decode(store.tokens_of(row))
        yield compare(row, losses[place], reference, recogniser.token_set.decode(decoded[place]))
