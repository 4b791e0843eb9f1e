"""Federated training: T central steps, with evaluation, checkpoints and a log. Killed and started again, it goes on.

    RUN/config.json, RUN/metrics.jsonl, RUN/checkpoints/, RUN/last, RUN/best    as in `runs.py`
    RUN/corpus                                                                  the corpus, where the run made its own
    RUN/result.json                                                             WER on dev and test, once finished

With seeded randomness a run that was killed ends with the same bits as one that was not, for any number of workers.
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sottovoce.config import Config, Resolved
from sottovoce.data.population import Population, iid_population
from sottovoce.data.selection import require_disjoint
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError, DataError
from sottovoce.federated.client import Client
from sottovoce.federated.engine import Engine
from sottovoce.federated.figures import Figures
from sottovoce.files import write_json
from sottovoce.model.recogniser import Recogniser, load_recogniser
from sottovoce.privacy.accounting import Accountant
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.runs import Run
from sottovoce.training import Display, MakeDisplay, Status, Training, open_held_out, open_run

# What may be changed when a run goes on: none of it changes the steps already taken.
MAY_CHANGE = ("federated.central_steps", "federated.evaluate_every", "federated.checkpoint_every", "data.test")
RESULT_FILE = "result.json"


def train_federated(group: Group, resolved: Resolved, folder: Path, make_display: MakeDisplay) -> None:
    """Train for the configured number of central steps; rank 0 writes into `folder`."""
    with open_run(group, folder, make_display) as (run, display):
        _train(group, resolved, run, display)


def _train(group: Group, resolved: Resolved, run: Run, display: Display) -> None:
    config = resolved.config
    users = open_users(config)
    recogniser = _start_model(config, users)
    dev = open_held_out("dev", config.data.dev, users, recogniser)
    test = open_held_out("test", config.data.test, users, recogniser)
    if dev is not None and test is not None:
        require_disjoint(dev, test, ("dev", "test"))
    state = config.federated.optimizer.start(recogniser.flat.theta)
    training = Training(resolved, group, run, recogniser, state, dev, display, timed=config.privacy.diagnostics)
    mechanism = Mechanism(config.privacy, config.participation, recogniser.flat.partition(config.federated.partition))
    client = Client(users.store, config.batching, config.federated.local, config.specaugment, config.seed)
    done = training.begin(MAY_CHANGE, {"users": users, "dev": dev})
    accountant = Accountant(mechanism)
    accountant.epsilon(1)  # what cannot be accounted for is refused before anyone trains
    if done == 0:
        training.write(0, {"guarantee": _guarantee(config, accountant.epsilon(config.federated.central_steps), users)})
    engine = Engine(group, users, recogniser, client, mechanism, config.federated.optimizer, state, training.stop)
    done = _loop(training, engine, accountant, done)
    training.finish(done)
    if done >= config.federated.central_steps:
        guarantee = _guarantee(config, accountant.epsilon(done), users)
        _conclude(training, test, done, guarantee)


def open_users(config: Config) -> Population:
    """Return the population that is trained on."""
    if config.data.train is None:
        raise ConfigError("data.train is required: the users. Give a store with --train.")
    users = config.data.train.open()
    return iid_population(users, config.seed) if config.users.iid else users


def _start_model(config: Config, users: Population) -> Recogniser:
    """Return the seed model, or a model at random."""
    device = config.hardware.open()
    if config.data.seed_model is None:
        recogniser = Recogniser.make(config.model, users.store.token_set, device).initialise(config.seed)
    else:
        recogniser = load_recogniser(config.data.seed_model, device)
        no_shape = {"dropout", "layer_drop"}
        if recogniser.options.model_dump(exclude=no_shape) != config.model.model_dump(exclude=no_shape):
            raise DataError(
                f"{config.data.seed_model} has another shape than model.* of the preset. Choose the preset it was "
                "trained with, or set model.* to its shape (see `sotto model`)."
            )
        recogniser = recogniser.with_options(config.model)
    recogniser.require_store(users.store)
    config.hardware.speed_up_(recogniser.encoder)
    return recogniser


def _guarantee(config: Config, epsilon: float | None, users: Population) -> str:
    """Say in one line what the whole run guarantees."""
    if epsilon is None:
        return f"none: {config.privacy.void}"
    simulated = " (seeded randomness: a simulation)" if config.privacy.randomness == "seeded" else ""
    return f"epsilon {epsilon:.4g} at delta {config.privacy.target_delta:g} for one {users.unit}{simulated}"


def _loop(training: Training, engine: Engine, accountant: Accountant, done: int) -> int:
    """Take the central steps that are left; return how many are done."""
    config = training.resolved.config
    options = config.federated
    while done < options.central_steps and not engine.stopping:
        at = time.monotonic()
        central_lr = options.schedule.at(done)
        figures = engine.step(done, central_lr)
        done += 1
        epsilon = accountant.epsilon(done)
        line = {"central_lr": central_lr, "epsilon": epsilon, **figures.line(diagnostics=config.privacy.diagnostics)}
        if config.privacy.randomness == "secure":
            training.save(done)  # before anything of the step is told: a step that is lost was never released
        training.write(done, line)
        training.display(_status(training, figures, done, epsilon, time.monotonic() - at))
        if done % options.evaluate_every == 0:
            training.evaluate(done)
        elif done % options.checkpoint_every == 0:
            training.save(done)
    return done


def _status(training: Training, figures: Figures, done: int, epsilon: float | None, seconds: float) -> Status:
    config = training.resolved.config
    shown = figures.loss if config.privacy.diagnostics else None
    speed = f"{figures.cohort / seconds:.1f} users/s" if config.privacy.diagnostics else ""
    return Status(done, config.federated.central_steps, shown, training.last_wer, speed, epsilon)


def _conclude(training: Training, test: Population | None, done: int, guarantee: str) -> None:
    """Evaluate on test, once, and write the result."""
    scores = None if test is None else asdict(training.scores(test))
    if training.group.leads:
        result: dict[str, Any] = {"steps": done, "dev_wer": training.last_wer, "best_dev_wer": training.best_wer}
        write_json(training.run.path / RESULT_FILE, result | {"test": scores, "guarantee": guarantee})
