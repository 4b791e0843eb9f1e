"""The aggregator of a deployment: it asks the clients of a cohort, checks what they answer, and adds it up.

Guarantees, besides those of every aggregator (`federated/aggregator.py`): a step ends at its deadline with who is
there; whoever is offline, late, or refused adds zero, and the divisor stays the public one; one user is asked once in a
step and added at most once; nothing about a user is logged but the name and, where an update was refused, the reason,
in a file that is private to the operator.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from sottovoce.config import Config, public_part
from sottovoce.deploy.contributions import Contributions
from sottovoce.deploy.enrolment import EnrolledUser
from sottovoce.deploy.keys import verifying_key
from sottovoce.deploy.link import Answer, Fleet
from sottovoce.deploy.masked_collection import Task, collect_masked
from sottovoce.deploy.messages import FROZEN, PROTOCOL, THETA, TaskHeader
from sottovoce.deploy.update_checks import REASONS, Refused, checked_update
from sottovoce.errors import PrivacyError
from sottovoce.federated.aggregator import AggregatorContext, Collected, Item, Users
from sottovoce.federated.diagnostics import Figures
from sottovoce.model.flat import FlatModel
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism

Say = Callable[[str], None]


@dataclass
class _Added:
    """What the clients of a cohort have added up to."""

    total: Tensor
    contributed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    received: int = 0  # bytes


@dataclass
class FleetAggregator:
    """The server's part in a deployed run."""

    context: AggregatorContext
    fleet: Fleet
    enrolled: Callable[[], Mapping[str, EnrolledUser]]  # as it is now: keys may be rotated while a run goes on
    config: Config
    run: Path
    name: str  # of the run, for clients
    deadline_seconds: float
    say: Say
    masked: bool = False  # by secure aggregation

    def __post_init__(self) -> None:
        """Refuse what a deployment cannot do, before anybody is asked."""
        self.mechanism = self.context.mechanism
        require_deployable(self.config, len(self.context.population))

    @property
    def leads(self) -> bool:
        """The server is one process."""
        return True

    def from_leader(self, item: Item) -> Item:
        """Return the item."""
        return item

    def broadcast_(self, vector: Tensor) -> Tensor:
        """Return the vector."""
        return vector

    def follow(self, mechanism: Mechanism) -> None:
        """Ask clients to clip to the bounds of this mechanism from now on."""
        self.mechanism = mechanism

    def collect(self, t: int, theta: Tensor, cohort: Users, figures: Figures) -> Collected:
        """Ask the clients of a cohort and return the sum of what they may add."""
        self.mechanism.require_range(len(cohort))
        tasks = self._tasks(t, theta, cohort)
        with figures.timed("users"):
            found = self._masked(tasks) if self.masked else self._plain(tasks, theta.device)
        names = {self.context.population.key_of(int(user)) for user in cohort}
        refused = {user: reason for user, reason in found.refused.items() if user not in found.contributed}
        silent = sorted(names - set(found.contributed) - set(refused))
        contributed = tuple(sorted(found.contributed))
        Contributions(t, contributed, refused, tuple(silent), found.received).append_to(self.run)
        if self.mechanism.diagnostics:
            self._tell(t, len(cohort), len(contributed), refused)
        return Collected(found.total.to(theta.device), len(contributed) * WEIGHTS)

    def _plain(self, tasks: Mapping[str, Task], device: torch.device) -> "_Added":
        """Return the sum of the updates that pass all checks."""
        found = _Added(torch.zeros(sum(self.mechanism.summed.sizes), dtype=torch.int64, device=device))
        asked = {user: (record.node_bytes, envelope) for user, (record, _, envelope) in tasks.items()}
        for answer in self.fleet.ask(asked, self.deadline_seconds):
            record, header, _ = tasks[answer.user]
            try:
                found.total += _checked(answer, header, record, self.mechanism).to(device)
            except Refused as refusal:
                found.refused[answer.user] = refusal.reason
            else:
                found.contributed.append(answer.user)
                found.received += answer.size
        return found

    def _masked(self, tasks: Mapping[str, Task]) -> "_Added":
        """Return the sum of updates that stay masked; whoever drops out after its masked update is in the sum."""
        step = collect_masked(self.fleet, tasks, self.mechanism, self.deadline_seconds)
        received = sum(step.received[user] for user in step.contributed)
        return _Added(torch.from_numpy(step.total), list(step.contributed), step.refused, received)

    def _tasks(self, t: int, theta: Tensor, cohort: Users) -> dict[str, Task]:
        """Return the tasks of everybody in the cohort who is enrolled now."""
        enrolled, tasks = self.enrolled(), dict[str, Task]()
        parts = {THETA: theta.cpu().numpy().tobytes()}
        if frozen := frozen_bytes(self.context.recogniser.flat):
            parts[FROZEN] = frozen
        digest, settings = hashlib.sha256(parts[THETA]).hexdigest(), public_part(self.config.model_dump(mode="json"))
        for user in (self.context.population.key_of(int(number)) for number in cohort):
            if user not in enrolled:
                continue
            header = TaskHeader(
                protocol=PROTOCOL,
                run=self.name,
                step=t,
                user=user,
                nonce=secrets.token_hex(16),
                theta=digest,
                bounds=self.mechanism.clip_norms if self.mechanism.privacy.adapts else None,
                languages=self.context.recogniser.token_set.languages,
                settings=settings,
                masked=self.masked,
            )
            tasks[user] = enrolled[user], header, header.sealed(parts)
        return tasks

    def _tell(self, t: int, asked: int, contributed: int, refused: Mapping[str, str]) -> None:
        """Say how a step went; counts of a cohort are private, so this is for diagnostics only."""
        reasons = "".join(f"; refused: {REASONS[reason]}" for reason in refused.values())
        self.say(f"Step {t + 1}: {contributed} of {asked} users contributed{reasons}.")


def _checked(answer: Answer, header: TaskHeader, record: EnrolledUser, mechanism: Mechanism) -> Tensor:
    if answer.envelope is None:
        raise Refused("unreadable")
    return checked_update(answer.envelope, header, verifying_key(record.signing_bytes), mechanism)


def frozen_bytes(flat: FlatModel) -> bytes:
    """Return the parameters that do not train, one after another, as float32; clients fetch them once."""
    return b"".join(tensor.detach().float().cpu().numpy().tobytes() for tensor in flat.frozen_tensors())


def require_deployable(config: Config, users: int) -> None:
    """Raise PrivacyError where a server could not check, or must not know, what a setting needs."""
    if config.privacy.clipping == "none":
        raise PrivacyError("Without clipping a server cannot check updates. Set privacy.clipping and clip_norm.")
    if config.participation.weight != "one":
        raise PrivacyError(
            f"participation.weight={config.participation.weight} would tell the server how much audio users have. Use "
            "participation.weight=one."
        )
    if config.users.iid:
        raise PrivacyError("users.iid=true would take audio from its users. A deployment has no IID control.")
    population = config.participation.population
    if population is not None and users > population:
        raise PrivacyError(
            f"More users are enrolled than participation.population={population}, the public number. State a number "
            "that enrolment is sure not to exceed."
        )
