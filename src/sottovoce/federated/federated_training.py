"""Federated training: T central steps, with evaluation, checkpoints, a log and a ledger. Killed and started again, it
goes on.

    RUN/config.json, RUN/metrics.jsonl, RUN/checkpoints/, RUN/last, RUN/best    as in `runs.py`
    RUN/ledger.jsonl                                                            every release, as in `ledger.py`
    RUN/corpus                                                                  the corpus, where the run made its own
    RUN/result.json                                                             WER on dev and test, once finished

With seeded randomness a run that was killed ends with the same bits as one that was not, for any number of workers.
"""

import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

from sottovoce.config import Config, Resolved
from sottovoce.data.population import Population
from sottovoce.data.selection import require_disjoint
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError
from sottovoce.federated.client import Client
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.engine import Engine
from sottovoce.federated.seed import describe_seed_model
from sottovoce.files import sha256_of, write_json
from sottovoce.model.recogniser import model_path
from sottovoce.privacy.accounting import pld_with, rounded_up
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger, epsilon_after, header_of, require_same_mechanism
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.randomness import stream
from sottovoce.runs.evaluations import record, scores_in
from sottovoce.runs.folder import Run, read_json
from sottovoce.runs.training import (
    Display,
    MakeDisplay,
    Status,
    Stop,
    Training,
    hashes,
    open_held_out,
    open_run,
    start_model,
)

# What may be changed when a run goes on: none of it changes the steps already taken.
MAY_CHANGE = (
    *("federated.central_steps", "federated.evaluate_every", "federated.checkpoint_every"),
    *("data.test", "data.seed_model", "privacy.budget", "privacy.diagnostics", "about", "corpus", "joining", "central"),
)
RESULT_FILE = "result.json"


def train_federated(
    group: Group, resolved: Resolved, folder: Path, make_display: MakeDisplay, stop: Stop | None = None
) -> None:
    """Train for the configured number of central steps; rank 0 writes into `folder`."""
    with open_run(group, folder, make_display) as (run, display):
        _train(group, resolved, run, display, stop or Stop())


def _train(group: Group, resolved: Resolved, run: Run, display: Display, stop: Stop) -> None:
    config = resolved.config
    speakers = open_speakers(config)
    users = speakers.iid(config.seed) if config.users.iid else speakers
    recogniser = start_model(config, users, fresh=not run.begun)
    dev = open_held_out("dev", config.data.dev, speakers, recogniser)
    test = open_held_out("test", config.data.test, speakers, recogniser)
    if dev is not None and test is not None:
        require_disjoint(dev, test, ("dev", "test"))
    mechanism = Mechanism(
        config.privacy,
        config.participation,
        recogniser.flat.partition(config.federated.partition),
        config.randomness.source,
    )
    _require_possible(mechanism, users)
    seed_model = "" if run.begun else describe_seed_model(config.data.seed_model, speakers)
    header = header_of(mechanism, users.unit, seed_model, _hash(config))
    if group.leads:
        require_same_mechanism(run.path / LEDGER_FILE, header)
    diagnostics = config.privacy.diagnostics
    state = config.federated.optimizer.start(recogniser.flat.theta)
    training = Training(resolved, group, run, recogniser, state, dev, display, stop, timed=False, events=diagnostics)
    found = hashes(users=users, dev=dev)
    if config.data.seed_model is not None and not run.begun:
        found["seed_model"] = sha256_of(model_path(config.data.seed_model))
    done = training.begin(MAY_CHANGE, found)
    if group.leads:
        training.ledger = Ledger(run.path / LEDGER_FILE, mechanism, header, training.ledger_mark)
        if done < config.federated.central_steps:
            (run.path / RESULT_FILE).unlink(missing_ok=True)
    planned = epsilon_after(mechanism, config.federated.central_steps)
    training.write(done, {"guarantee": _guarantee(config, mechanism, planned, None, users)})
    client = Client(users.store, config.batching, config.federated.local, config.specaugment, config.seed)
    engine = Engine(
        group,
        users,
        recogniser,
        client,
        mechanism,
        config.federated.optimizer,
        state,
        training.stop,
        ledger=training.ledger,
        charged_before=group.from_leader(0 if training.ledger is None else training.ledger.done_before),
    )
    done, paid = _loop(training, engine, done)
    training.finish(done)
    if done >= config.federated.central_steps or not paid:
        _conclude(training, mechanism, users, test, done)


def _require_possible(mechanism: Mechanism, users: Population) -> None:
    """Raise what would stop the first step, before anything is written."""
    _ = mechanism.clip_norms
    mechanism.draw_cohort(len(users), stream(0, "trial"))
    mechanism.require_range(math.ceil(mechanism.cohort_size + 6 * math.sqrt(mechanism.cohort_size)))
    epsilon_after(mechanism, 1)


def _hash(config: Config) -> str:
    return hashlib.sha256(json.dumps(config.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def open_speakers(config: Config) -> Population:
    """Return the speakers that are trained on."""
    if config.data.train is None:
        raise ConfigError("data.train is required: the users. Give a store with --train.")
    return config.data.train.open()


def _guarantee(
    config: Config, mechanism: Mechanism, epsilon: float | None, tight: float | None, users: Population
) -> str:
    """Say in one line what a run guarantees."""
    if epsilon is None:
        return f"none: {config.privacy.void}"
    by_pld = "" if tight is None else f", {rounded_up(tight)} (PLD)"
    seeded_by = "" if config.data.seed_model is None else "; beyond what the seed model reveals"
    simulated = " (seeded randomness: a simulation)" if mechanism.source == "seeded" else ""
    return (
        f"epsilon {rounded_up(epsilon)} (RDP){by_pld} at delta {config.privacy.target_delta:g}; unit: all audio of one "
        f"{users.unit}; adjacency: {mechanism.event.adjacency}{seeded_by}{simulated}"
    )


def _loop(training: Training, engine: Engine, done: int) -> tuple[int, bool]:
    """Take the central steps that are left; return how many are done, and False where the budget ended them."""
    config, ledger = training.resolved.config, training.ledger
    options = config.federated
    if done > 0 and done % options.evaluate_every == 0 and training.evaluated != done:
        training.evaluate(done)
    while done < options.central_steps and not engine.stopping:
        if config.privacy.budget is not None and not training.group.from_leader(
            ledger is None or ledger.may_release(done)
        ):
            return done, False
        at = time.monotonic()
        central_lr = options.schedule.at(done)
        figures = engine.step(done, central_lr)
        done += 1
        epsilon = None if ledger is None else ledger.epsilon
        line = {"central_lr": central_lr, "epsilon": epsilon, **figures.line(diagnostics=config.privacy.diagnostics)}
        if config.privacy.diagnostics:
            line["not_private"]["elapsed_seconds"] = time.monotonic() - training.began
        training.write(done, line)
        training.display(_status(training, figures, done, epsilon, time.monotonic() - at))
        if done % options.evaluate_every == 0:
            training.evaluate(done)
            engine.stopping = training.stop.agreed(training.group)  # it may have taken long
        elif done % options.checkpoint_every == 0 or engine.mechanism.source == "secure":
            training.save(done)  # a secure step that is lost is charged again
    return done, True


def _status(training: Training, figures: Figures, done: int, epsilon: float | None, seconds: float) -> Status:
    config = training.resolved.config
    shown = figures.loss if config.privacy.diagnostics else None
    speed = f"{figures.cohort / seconds:.1f} users/s" if config.privacy.diagnostics else ""
    return Status(done, config.federated.central_steps, shown, training.last_wer, speed, epsilon)


def _conclude(training: Training, mechanism: Mechanism, users: Population, test: Population | None, done: int) -> None:
    """Evaluate on dev and test, speaker by speaker, account tightly, and write the result."""
    path, config = training.run.path / RESULT_FILE, training.resolved.config
    if training.group.from_leader(path.exists() and read_json(path).get("steps") == done):
        return
    found = record(training.run.path, done, training.recogniser, {"dev": training.dev, "test": test}, training.group)
    if training.ledger is None:
        return
    epsilon, releases = training.ledger.epsilon, training.ledger.releases
    tight = None
    if epsilon is not None:
        extra = releases * mechanism.sampler_epsilon
        tight = pld_with(extra, {mechanism.event: releases}, config.privacy.target_delta).epsilon
    spent = {"releases": releases, "epsilon_rdp": epsilon, "epsilon_pld": tight}
    training.ledger.note({"finished": done, **spent})
    guarantee = _guarantee(config, mechanism, epsilon, tight, users)
    result: dict[str, Any] = {"steps": done, "dev_wer": training.last_wer, "best_dev_wer": training.best_wer}
    stopped = {"stopped": "by privacy.budget"} if done < config.federated.central_steps else {}
    scores = scores_in(found["test"]) if "test" in found else None
    write_json(path, {**result, "test": scores, **spent, **stopped, "guarantee": guarantee})
