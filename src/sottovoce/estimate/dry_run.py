"""What a training would do, before it starts: local work, users and audio of a step, time, epsilon, disk.

The run is prepared exactly as it would be, with every error that would stop it, and some of its work is measured
(`step_time.py`). Nothing is written.
"""

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sottovoce.central.central_training import SHORTER, require_dev_for_patience
from sottovoce.config import Config, Resolved
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError
from sottovoce.estimate.step_time import StepTime, central_step, evaluation_seconds, federated_step
from sottovoce.federated.preparing import Prepared, shorter
from sottovoce.files import write_json
from sottovoce.privacy.accounting import account_for, rdp
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.privacy_options import Budget
from sottovoce.runs.display import NoDisplay
from sottovoce.runs.documents import TrainingKind
from sottovoce.runs.folder import Run
from sottovoce.runs.pace import DAY_SECONDS
from sottovoce.runs.stop import Stop
from sottovoce.runs.training import OpenRun, TrainingContext

_FLOAT = 4  # bytes
_CHECKPOINTS = 2  # the last and the best


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The privacy that a federated run will have spent at its end."""

    epsilon_rdp: float | None
    epsilon_pld: float | None
    target_delta: float
    no_guarantee: str | None  # why there is no epsilon
    no_pld: str | None  # why there is none by PLD
    budget_steps: int | None  # after how many steps privacy.budget ends the run; None where it does not


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """A training as it would be, on this machine."""

    run: str
    kind: TrainingKind
    processes: int
    steps: int
    steps_done: int
    parameters: int  # of the model
    trainable: int  # D, the parameters that train
    layers: int  # of these
    step: StepTime
    evaluations: int  # that are left
    seconds_per_evaluation: float
    seconds_left: float
    minutes_end_at: int | None  # the step at which a limit on minutes ends the run; None where it does not
    shorter: str  # what would make it shorter
    local_work: str | None  # of a user, in words
    privacy: Spending | None  # of a federated run
    private_figures: bool  # these figures depend on users whom the run protects
    disk_bytes: int
    disk_free_bytes: int

    @property
    def long(self) -> bool:
        """Whether the run takes more than a day."""
        return self.seconds_left > DAY_SECONDS

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {**asdict(self), "more_than_a_day": self.long}


def dry_run(group: Group, kind: TrainingKind, resolved: Resolved, folder: Path, result: Path) -> None:
    """Prepare and measure a run with a group of processes; rank 0 writes the figures to the file `result`."""
    config = resolved.config
    if config.data.train is None and config.users.dev_speakers and kind == "federated":
        raise ConfigError(
            "--dry-run measures users of a store, and this run would make its own. Make it first with `sotto data "
            f"prepare preset {resolved.name} --out STORE`, and give it with --train."
        )
    Run(folder).require_own(kind)
    opened = OpenRun(resolved=resolved, group=group, run=Run(folder), display=NoDisplay(), stop=Stop())
    planned = _central(opened) if kind == "central" else _federated(opened)
    if group.leads:
        write_json(result, planned.document(), private=True)


def _central(opened: OpenRun) -> DryRun:
    config = opened.resolved.config
    train = opened.speakers()
    context = opened.prepare(train, optimizer=config.central.optimizer, steps=config.central.steps)
    require_dev_for_patience(context)
    step = central_step(context, train)
    planned = _planned(context, "central", step, config.central.evaluate_every, SHORTER)
    minutes = config.central.max_minutes
    if minutes is None or planned.seconds_left <= 60 * minutes:
        return planned
    share = 60 * minutes / planned.seconds_left
    reached = planned.steps_done + round(share * (planned.steps - planned.steps_done))
    evaluations = round(share * planned.evaluations)
    return replace(planned, seconds_left=60 * minutes, minutes_end_at=reached, evaluations=evaluations)


def _federated(opened: OpenRun) -> DryRun:
    prepared = Prepared.of(opened)
    context, config = prepared.context, opened.resolved.config
    privacy = _spending(prepared.header(None), config)
    step = federated_step(prepared)
    planned = _planned(context, "federated", step, config.federated.evaluate_every, shorter(config.federated))
    secret = prepared.mechanism.start_noise(context.recogniser.flat.theta).vectors
    noise = _CHECKPOINTS * sum(vector.nbytes for vector in secret.values())
    return replace(
        planned,
        local_work=config.federated.local.described,
        privacy=privacy,
        private_figures=privacy.no_guarantee is None,
        disk_bytes=planned.disk_bytes + noise,
    )


def _planned(context: TrainingContext, kind: TrainingKind, step: StepTime, every: int, how: str) -> DryRun:
    checkpoint, folder = context.run.checkpoint, context.run.path
    done = 0 if checkpoint is None else min(checkpoint.step, context.steps)
    left = context.steps - done
    evaluations = 0 if context.dev is None else -(-context.steps // every) - done // every
    on_dev, on_test = (evaluation_seconds(context, one) for one in (context.dev, context.test))
    parameters = sum(tensor.numel() for tensor in context.recogniser.flat.tensors().values())
    flat, partition = context.recogniser.flat, context.resolved.config.federated.partition
    saved = (*context.state.vectors.values(), *flat.unmerged().values())
    state = sum(vector.numel() for vector in saved)
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return DryRun(
        run=str(folder),
        kind=kind,
        processes=context.group.size,
        steps=context.steps,
        steps_done=done,
        parameters=parameters,
        trainable=flat.theta.numel(),
        layers=len(flat.partition(partition if kind == "federated" else "tensor")),
        step=step,
        evaluations=evaluations,
        seconds_per_evaluation=on_dev,
        seconds_left=left * step.seconds + evaluations * on_dev + (on_dev + on_test if left else 0.0),
        minutes_end_at=None,
        shorter=how,
        local_work=None,
        privacy=None,
        private_figures=False,
        disk_bytes=_CHECKPOINTS * _FLOAT * (parameters + state) + context.steps * step.log_bytes,
        disk_free_bytes=shutil.disk_usage(existing).free,
    )


def _spending(header: LedgerHeader, config: Config) -> Spending:
    """Return the epsilon after all steps, as the run itself would state it."""
    steps = config.federated.central_steps
    budget = config.privacy.budget
    if not header.guaranteed:
        reason = header.guarantee.removeprefix("none: ")
        return Spending(
            epsilon_rdp=None,
            epsilon_pld=None,
            target_delta=header.target_delta,
            no_guarantee=reason,
            no_pld=None,
            budget_steps=None,
        )
    ends = None if budget is None else _steps_within(header, budget, steps)
    spent = account_for(header.spent(steps if ends is None else ends), header.target_delta)
    return Spending(
        epsilon_rdp=spent.rdp.epsilon,
        epsilon_pld=spent.pld.epsilon,
        target_delta=header.target_delta,
        no_guarantee=None,
        no_pld=spent.pld.reason,
        budget_steps=ends,
    )


def _steps_within(header: LedgerHeader, budget: Budget, steps: int) -> int | None:
    """Return after how many steps this run alone has used up a budget; None where the budget is enough for all."""
    delta = budget.target_delta or header.target_delta

    def enough(releases: int) -> bool:
        return rdp(header.spent(releases), delta).epsilon <= budget.epsilon

    if enough(steps):
        return None
    low, high = 0, steps  # enough for `low`, not for `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
