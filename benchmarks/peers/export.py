"""Make the speech of an item and write what the other frameworks read: features, targets, who trains on what."""

import json
from pathlib import Path

import numpy as np
from items import CLIP_NORM, GRADIENT_CLIP, LOCAL_LR, NOISE, Item

from sottovoce.data.batching import Batching
from sottovoce.data.corpora import Synthetic
from sottovoce.data.population import Population
from sottovoce.data.preparation import prepare
from sottovoce.data.store import Store
from sottovoce.distributed import Group
from sottovoce.federated.client import Client
from sottovoce.federated.engine import Engine
from sottovoce.federated.federated_options import Local
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.model.recogniser import Recogniser
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.optim import Lamb
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.randomness import stream

SEED = 0


def make_engine(item: Item, store: Store, group: Group) -> Engine:
    """Return our engine for an item, as a run would make it."""
    options = TransformerOptions(
        blocks=item.blocks, width=item.width, heads=item.heads, mlp_width=item.mlp_width, dropout=0.0, layer_drop=0.0
    )
    recogniser = Recogniser.make(options, store.token_set).initialise(SEED)
    mechanism = Mechanism(
        Privacy(clip_norm=CLIP_NORM, clipping="dim", sigma_dp=NOISE),
        Participation(population=item.speakers, cohort_size=item.cohort, sampling="fixed"),
        recogniser.flat.partition(),
    )
    batching = Batching(seconds=item.batch_seconds, **({"max_padding": 1.0} if item.one_batch else {}))
    local = Local(lr=LOCAL_LR, steps=item.local_steps, gradient_clip=GRADIENT_CLIP)
    client = Client(store, batching, local, None, SEED)
    users = Population.of(store)
    server = Lamb()
    return Engine(
        ProcessAggregator(group, users, recogniser, client, mechanism),
        recogniser,
        mechanism,
        server,
        server.start(recogniser.flat.theta),
        users=len(users),
        seed=SEED,
    )


def export(item: Item, folder: Path, workers: int) -> None:
    """Prepare the store, which is kept, and write the files of `speech.py` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Synthetic(
        speakers=item.speakers,
        domain="noisy",
        mean_utterances=item.mean_utterances,
        max_utterances=item.max_utterances,
        tail=1.5,
    )
    store = prepare(corpus, item.store(folder), workers=workers)
    item.write(folder)
    np.save(folder / "features.npy", store.frames(0, store.info.frames))
    np.savez(
        folder / "index.npz",
        starts=store.frame_offsets,
        targets=store.tokens().astype(np.int64),
        target_starts=store.token_offsets,
        tokens=len(store.token_set.tokens),
    )
    engine = make_engine(item, store, Group())
    (folder / "schedule.json").write_text(json.dumps([_cohort(engine, t) for t in range(item.steps + 1)]))


def _cohort(engine: Engine, t: int) -> list[tuple[str, list[list[int]]]]:
    """Return the users of a step and the utterances of each of their local batches, as the engine draws them."""
    aggregator = engine.aggregator
    if not isinstance(aggregator, ProcessAggregator):
        raise TypeError("Expected the aggregator of make_engine.")
    users, client = aggregator.population, aggregator.client
    members = []
    for user in engine.mechanism.draw_cohort(len(users), stream(SEED, "cohort", t)).tolist():
        key, rows = users.key_of(user), users.rows_of(user)
        members.append((key, [batch.rows.tolist() for batch in client.planned(t, key, rows)]))
    return members
