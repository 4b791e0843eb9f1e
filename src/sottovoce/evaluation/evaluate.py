"""How well a model recognises a store: loss, corpus WER and CER, per speaker and by group. Every utterance counts.

Corpus WER is all edits over all reference words (jiwer counts them); greedy decoding. No utterance is dropped for its
length: one that is longer than the batch is a batch of its own.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jiwer
import numpy as np
import numpy.typing as npt
import torch

from sottovoce.data.batching import Batching, epoch, load
from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.model.ctc import ctc_loss, greedy
from sottovoce.model.recogniser import Recogniser
from sottovoce.processes import Progress, no_progress
from sottovoce.randomness import stream

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Heard:
    """What the model made of one utterance."""

    row: int
    loss: float
    reference: str
    hypothesis: str
    word_edits: int
    words: int
    character_edits: int
    characters: int


@dataclass(frozen=True)
class Scores:
    """The sums over utterances that the rates are made of."""

    utterances: int
    loss: float
    wer: float
    cer: float
    words: int


def score(heard: Sequence[Heard]) -> Scores:
    """Return the corpus figures of some utterances."""
    words, characters = sum(one.words for one in heard), sum(one.characters for one in heard)
    return Scores(
        utterances=len(heard),
        loss=float(np.mean([one.loss for one in heard])),
        wer=sum(one.word_edits for one in heard) / words,
        cer=sum(one.character_edits for one in heard) / characters,
        words=words,
    )


def evaluate(
    recogniser: Recogniser,
    store: Store,
    rows: Rows,
    group: Group,
    batch_seconds: float = 120.0,
    progress: Progress = no_progress,
) -> list[Heard]:
    """Return what the model makes of every row, in the order of the rows; all processes share the work."""
    recogniser.require_store(store)
    if len(rows) == 0:
        raise DataError(f"There is nothing to evaluate on in {store.path}: no utterance was selected.")
    options = Batching(seconds=batch_seconds)
    planned = epoch(rows, store.frames_of(rows), options, stream(0, "evaluation"))
    batches = [micro for batch in planned for micro in batch.micro]
    # Longest first, dealt out in turn: the processes finish together.
    batches.sort(key=lambda micro: (-int(store.frames_of(micro).max()) * len(micro), int(micro[0])))
    mine: list[Heard] = []
    recogniser.encoder.eval()
    for number, micro in enumerate(batches):
        if number % group.size == group.rank:
            mine += _listen(recogniser, store, micro)
            progress("evaluation", number + 1, len(batches))
    recogniser.encoder.train()
    everything = {one.row: one for part in group.gather(mine) for one in part}
    return [everything[int(row)] for row in rows]


def _listen(recogniser: Recogniser, store: Store, rows: Rows) -> Iterator[Heard]:
    batch = load(store, rows)
    device = recogniser.flat.theta.device
    with torch.inference_mode():
        features, frames = torch.from_numpy(batch.features).to(device), torch.from_numpy(batch.frames).to(device)
        scores, outputs = recogniser.encoder(features, frames)
        targets, lengths = torch.from_numpy(batch.targets).to(device), torch.from_numpy(batch.target_lengths).to(device)
        losses = ctc_loss(scores, outputs, targets, lengths).tolist()
        if not all(map(math.isfinite, losses)):
            raise DataError("The model's loss is not a finite number: its parameters are damaged. Use another model.")
        decoded = greedy(scores, outputs)
    for place, row in enumerate(rows):
        reference = recogniser.token_set.decode(store.tokens_of(int(row)))
        yield compare(int(row), losses[place], reference, recogniser.token_set.decode(decoded[place]))


def compare(row: int, loss: float, reference: str, hypothesis: str) -> Heard:
    """Count the edits between reference and hypothesis, in words and in characters."""
    words, characters = jiwer.process_words(reference, hypothesis), jiwer.process_characters(reference, hypothesis)
    return Heard(
        row=row,
        loss=loss,
        reference=reference,
        hypothesis=hypothesis,
        word_edits=words.substitutions + words.deletions + words.insertions,
        words=words.hits + words.substitutions + words.deletions,
        character_edits=characters.substitutions + characters.deletions + characters.insertions,
        characters=characters.hits + characters.substitutions + characters.deletions,
    )
