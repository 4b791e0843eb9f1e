"""Training, evaluation, transcription and accounting as plain Python calls, which the command line is a layer over.

`import sottovoce as sv` has every public name of this module. A script that uses more than one worker starts processes,
so it must be guarded by `if __name__ == "__main__":`. Where workers compute, only they load torch.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sottovoce.boundary.neighbours import Leaving, Neighbours
from sottovoce.boundary.neighbours import neighbours as compare_neighbours
from sottovoce.boundary.publish import Published, Which
from sottovoce.boundary.publish import publish as publish_run
from sottovoce.config import Layer, Resolved, Tree, resolve
from sottovoce.data.population import Population
from sottovoce.data.selection import Selection
from sottovoce.data.speech import Place, Speech, open_speech
from sottovoce.data.store import Store
from sottovoce.errors import ConfigError, DataError
from sottovoce.evaluation.grouping import groupings
from sottovoce.evaluation.scores import Breakdown
from sottovoce.files import make_folder, written_whole
from sottovoce.model.hardware import Hardware
from sottovoce.privacy.acceptance import Acceptance
from sottovoce.privacy.claims import claim_for
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.noise import NoiseMechanism
from sottovoce.privacy.planner import Accounting, Plan, solve
from sottovoce.privacy.privacy_options import Sampling
from sottovoce.processes import Progress, no_progress
from sottovoce.reading import read_bounded
from sottovoce.runs.display import MakeDisplay, NoDisplay
from sottovoce.runs.folder import Run
from sottovoce.runs.own_corpus import with_own_corpus
from sottovoce.workers import run_workers

if TYPE_CHECKING:
    from sottovoce.distributed import Group
    from sottovoce.federated.aggregator import MakeAggregator

__all__ = [
    "Place",
    "Speech",
    "epsilon",
    "evaluate",
    "neighbours",
    "plan",
    "preset",
    "publish",
    "train_central",
    "train_federated",
]


def preset(name: str, *settings: Tree | Layer) -> Resolved:
    """Return the settings of a preset, or of a YAML file, with changes laid over them.

    A change is a tree of nested dictionaries. Its values may be option objects, also of your own classes.

    Example: `sv.preset("tiny", {"seed": 1, "federated": {"optimizer": sv.Adam(), "local": {"steps": 10}}})`
    """
    return resolve(name, *settings)


def train_central(
    settings: Resolved | str,
    run: Place,
    *,
    train: Speech | None = None,
    dev: Speech | None = None,
    test: Speech | None = None,
    seed_model: Place | None = None,
    workers: int = 1,
    display: MakeDisplay = NoDisplay,
) -> Run:
    """Train a model on all data together and return its run; an unfinished run in the folder is resumed.

    `dev` chooses the best checkpoint; `test` is evaluated once, at the end. Killed and started again, training ends
    with the same bits.

    Example: `run = sv.train_central("tiny", "runs/digits", train=speakers, dev=heldout)`
    """
    resolved = _with_data(settings, Path(run), train=train, dev=dev, test=test, seed_model=seed_model)
    return _train(_central_worker, resolved, Path(run), workers, display)


def _central_worker(group: "Group", resolved: Resolved, run: Path, display: MakeDisplay) -> None:
    from sottovoce.central.central_training import train_central  # noqa: PLC0415 - loads torch

    train_central(group, resolved, run, display)


def train_federated(
    settings: Resolved | str,
    run: Place,
    *,
    train: Speech | None = None,
    dev: Speech | None = None,
    test: Speech | None = None,
    seed_model: Place | None = None,
    workers: int = 1,
    display: MakeDisplay = NoDisplay,
    progress: Progress = no_progress,
    aggregator: "MakeAggregator | None" = None,
) -> Run:
    """Train a model on users who keep their audio and return its run; an unfinished run in the folder is resumed.

    Every speaker of `train` is a user. Without `train`, a preset such as `quick` makes its own corpus in the run's
    folder and reports that to `progress`. Killed and started again, training ends with the same bits, with any number
    of workers.

    `aggregator` makes the backend: who has the users train and adds up their clipped deltas. Without it these are the
    run's own processes. With several workers it must be a function or class of an importable module.

    Example: `run = sv.train_federated("quick", "runs/quick"); run.epsilon.tightest, run.evaluations["test"].wer`
    """
    resolved = _with_data(settings, Path(run), train=train, dev=dev, test=test, seed_model=seed_model)
    resolved = with_own_corpus(resolved, Path(run), workers, progress)
    return _train(_federated_worker, resolved, Path(run), workers, display, aggregator)


def _federated_worker(
    group: "Group",
    resolved: Resolved,
    run: Path,
    display: MakeDisplay,
    aggregator: "MakeAggregator | None",
) -> None:
    from sottovoce.federated.federated_training import train_federated  # noqa: PLC0415 - loads torch

    train_federated(group, resolved, run, display, make_aggregator=aggregator)


def _train(
    worker: Callable[..., None], resolved: Resolved, run: Path, workers: int, display: MakeDisplay, *more: object
) -> Run:
    hardware = resolved.config.hardware
    run_workers(worker, (resolved, run, display, *more), workers, hardware.threads_per_worker, limit=hardware.processes)
    return Run(run)


def _with_data(
    settings: Resolved | str,
    run: Path,
    *,
    train: Speech | None,
    dev: Speech | None,
    test: Speech | None,
    seed_model: Place | None,
) -> Resolved:
    resolved = resolve(settings) if isinstance(settings, str) else settings
    given = {"train": train, "dev": dev, "test": test}
    data: Tree = {role: _selection(speech, run, role) for role, speech in given.items() if speech is not None}
    if seed_model is not None:
        data["seed_model"] = Path(seed_model)
    return resolved.over(Layer({"data": data}, "the call")) if data else resolved


def _selection(speech: Speech, run: Path, role: str) -> Selection:
    """Return speech as a run notes it: a store and a list of speakers, which is written into the run's folder."""
    if isinstance(speech, Selection):
        return speech
    if isinstance(speech, Store):
        return Selection(store=speech.path)
    if not isinstance(speech, Population):
        return Selection.parse(os.fspath(speech))
    if speech.unit != "speaker":
        raise ConfigError("A run deals out utterances itself. Give the speakers, and set users.iid to true.")
    if len(speech) == speech.store.info.speakers:
        return Selection(store=speech.store.path)
    make_folder(run)
    path, content = run / f"{role}.txt", "".join(f"{speaker}\n" for speaker in speech.speakers).encode()
    if path.exists() and (run / "config.json").exists():
        if read_bounded(path) != content:
            raise DataError(f"{path} names other speakers: {run} was started with them. Choose another folder.")
    else:
        with written_whole(path, private=True) as file:
            file.write(content)
    return Selection(store=speech.store.path, speakers=path)


def evaluate(
    model: Place,
    speech: Speech,
    *,
    by: Sequence[str] | None = None,
    batch_seconds: float = 120.0,
    workers: int = 1,
    progress: Progress = no_progress,
) -> Breakdown | None:
    """Evaluate a saved model with several workers; return its error rates, or None on a process that does not lead.

    Example: `sv.evaluate("runs/digits", "stores/digits@heldout.txt", workers=2).wer`
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        run_workers(_evaluate_worker, (Path(model), speech, by, batch_seconds, progress, result), workers, 1)
        return Breakdown.model_validate_json(result.read_bytes()) if result.exists() else None


def _evaluate_worker(
    group: "Group",
    model: Path,
    speech: Speech,
    by: Sequence[str] | None,
    batch_seconds: float,
    progress: Progress,
    result: Path,
) -> None:
    from sottovoce.evaluation.model import evaluate_population  # noqa: PLC0415 - loads torch
    from sottovoce.model.recogniser import load_recogniser  # noqa: PLC0415 - loads torch

    population = open_speech(speech)
    columns = groupings(population, by)  # before the model is loaded: a wrong name is found at once
    recogniser = load_recogniser(model, Hardware().open())
    shown = progress if group.leads else no_progress
    breakdown = evaluate_population(
        recogniser, population, columns, batch_seconds=batch_seconds, group=group, progress=shown
    )
    if group.leads:
        result.write_text(breakdown.model_dump_json(), encoding="utf-8")


def publish(run: Place, out: Place, *, model: Which = "best") -> Published:
    """Export what the guarantee of a run covers: model, ledger, public log, statement and public configuration.

    Refused unless the run has a guarantee, its randomness was secure and its ledger holds. `out` appears whole or not
    at all.

    Example: `sv.publish("runs/private", "release").files["model.safetensors"]`
    """
    return publish_run(Path(run), Path(out), model=model)


def neighbours(
    settings: Resolved | str,
    *,
    train: Speech | None = None,
    dev: Speech | None = None,
    test: Speech | None = None,
    seed_model: Place | None = None,
    without: str | None = None,
    leaving: Leaving = "store",
    repeat: int = 5,
    steps: int = 2,
    workers: int = 1,
    work: Place | None = None,
    progress: Progress = no_progress,
) -> Neighbours:
    """Make short secure runs with and without one user, and look for the user in everything that is public of them.

    By default the user with the most audio leaves the store; `leaving="list"` only shortens the list of users. The runs
    are made in a temporary folder below `work` and removed. An empty `comparison.findings` is no proof.

    Example: `sv.neighbours("quick", repeat=5).comparison.findings`
    """
    with tempfile.TemporaryDirectory() as lists:
        return compare_neighbours(
            _with_data(settings, Path(lists), train=train, dev=dev, test=test, seed_model=seed_model),
            without=without,
            leaving=leaving,
            repeat=repeat,
            steps=steps,
            workers=workers,
            work=None if work is None else Path(work),
            progress=progress,
        )


def epsilon(
    *,
    sigma_dp: float,
    cohort_size: float,
    population: int,
    central_steps: int,
    target_delta: float = 1e-9,
    sampling: Sampling = "poisson",
    noise: NoiseMechanism | None = None,
    accepted: tuple[Acceptance, ...] = (),
) -> Epsilons:
    """Return the epsilon of a run with these sizes, by RDP and by PLD; `noise` is independent unless given.

    Where delta is not below 1/K it says nothing and is refused, unless `accepted` holds "large_delta".

    `sigma_dp` is the standard deviation of the noise on the average, in units of the clip norm C.

    Example: `sv.epsilon(sigma_dp=3e-6, cohort_size=204_800, population=69_506_000, central_steps=2034).tightest`
    """
    claim = claim_for(
        sigma_dp=sigma_dp,
        cohort_size=cohort_size,
        population=population,
        central_steps=central_steps,
        target_delta=target_delta,
        sampling=sampling,
        noise=noise,
        accepted=accepted,
    )
    return claim.accounted.epsilons


def plan(
    *,
    population: int | None = None,
    cohort_size: float | None = None,
    sigma_dp: float | None = None,
    central_steps: int | None = None,
    epsilon: float | None = None,
    target_delta: float = 1e-9,
    sampling: Sampling = "poisson",
    accounting: Accounting = "pld",
    accepted: tuple[Acceptance, ...] = (),
) -> Plan:
    """Solve for the one of population, cohort size, noise, steps and epsilon that is not given.

    A plan whose delta is not below 1/K is refused, unless `accepted` holds "large_delta".

    Example: `sv.plan(cohort_size=204_800, sigma_dp=1e-5, central_steps=2000, epsilon=10).population`
    """
    given = Plan(
        population=population,
        cohort_size=cohort_size,
        sigma_dp=sigma_dp,
        central_steps=central_steps,
        epsilon=epsilon,
        target_delta=target_delta,
        sampling=sampling,
        accepted=accepted,
    )
    return solve(given, accounting)
