"""The server's part in a masked step: it leads the cohort's clients through the five rounds of a masked sum.

Every round is one question to the clients that are still there, over the same fleet as plain tasks, and ends at its
part of the step's deadline. The model goes down with the round `mask`, so clients train once keys and shares are dealt.

Guarantees: the server sees no single update; the sum equals the plain one of the contributors to the bit; where too few
are left, or the sum is out of range, the step adds nothing, as if its cohort were silent.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt

import numpy as np

from sottovoce.deploy.enrolment import EnrolledUser
from sottovoce.deploy.link import Answer, Fleet
from sottovoce.deploy.masking.directory import IdentityDirectory
from sottovoce.deploy.masking.masking_server import MaskingServer
from sottovoce.deploy.masking.masking_session import FEWEST, MaskingSession, SecureAggregationError
from sottovoce.deploy.messages import (
    IDENTITIES,
    MESSAGE,
    PROTOCOL,
    SESSION,
    Envelope,
    Integers,
    Phase,
    RoundHeader,
    TaskHeader,
)
from sottovoce.deploy.update_checks import squared_bounds
from sottovoce.errors import PrivacyError
from sottovoce.privacy.mechanism import Mechanism

# When each round ends at the latest, as a share of the deadline: time that a round leaves over is the next one's.
_ENDS: dict[Phase, float] = {"advertise": 0.1, "share": 0.2, "mask": 0.8, "agree": 0.9, "reveal": 1.0}
_LONGEST_NAME = 64  # bytes, in a session

Task = tuple[EnrolledUser, TaskHeader, Envelope]


@dataclass
class MaskedStep:
    """What a masked step has come to; without contributors, the total is zero."""

    total: Integers
    contributed: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)  # bytes by user, in all rounds


def require_maskable(users: Mapping[str, EnrolledUser]) -> None:
    """Raise PrivacyError where enrolled users cannot be told apart by keys, or have names too long for a session."""
    if shared := _sharing_keys(users):
        raise PrivacyError(
            f"{min(shared)!r} shares a key with another user, as a site's users do. Secure aggregation needs a client "
            "with keys of its own for every user."
        )
    if long := [user for user in users if len(user.encode()) > _LONGEST_NAME]:
        raise PrivacyError(
            f"{long[0]!r} is too long a name for secure aggregation. Enrol users by at most 64 bytes each."
        )


def _sharing_keys(users: Mapping[str, EnrolledUser]) -> set[str]:
    owners = Counter(record.signing_bytes for record in users.values())
    return {user for user, record in users.items() if owners[record.signing_bytes] > 1}


def largest_of(mechanism: Mechanism) -> int:
    """Return the largest size of an integer that clipping, or a count, allows to one user."""
    counts = 0 if mechanism.grid is None else int(mechanism.grid.count)
    return max(counts, 1, *(isqrt(_floor(bound)) for bound in squared_bounds(mechanism)))


def _floor(bound: Fraction) -> int:
    return bound.numerator // bound.denominator


def collect_masked(fleet: Fleet, tasks: Mapping[str, Task], mechanism: Mechanism, seconds: float) -> MaskedStep:
    """Return the sum of the updates of a cohort, of which the server sees none."""
    found = MaskedStep(np.zeros(sum(mechanism.summed.sizes), dtype=np.int64))
    unfit = _sharing_keys({user: record for user, (record, _, _) in tasks.items()})
    tasks = {user: task for user, task in sorted(tasks.items()) if user not in unfit}
    if len(tasks) < FEWEST:
        return found
    directory = IdentityDirectory({user: record.signing_bytes for user, (record, _, _) in tasks.items()})
    _, first, _ = next(iter(tasks.values()))
    session = MaskingSession.of(
        *(session_run(first.run, directory), first.step, tasks), length=len(found.total), largest=largest_of(mechanism)
    )
    server, began = MaskingServer(session, directory.verify), time.monotonic()
    identities = b"".join(directory.keys[name] for name in session.names)
    parts = {name: {SESSION: session.to_bytes(), IDENTITIES: identities} for name in session.names}
    try:
        for phase, end in _ENDS.items():
            asked = {user: (tasks[user][0].node_bytes, _question(phase, tasks[user], parts[user])) for user in parts}
            for answer in fleet.ask(asked, max(began + end * seconds - time.monotonic(), 1.0)):
                _take(server, answer, found)
            parts = {user: {MESSAGE: message} for user, message in server.advance().items()}
        total, contributed = server.result()
        _require_counts(total, len(contributed), mechanism)
    except SecureAggregationError:  # too few are left, or somebody's shares or sum are wrong: nothing is added
        return found
    found.total, found.contributed = total, contributed
    return found


def _require_counts(total: Integers, users: int, mechanism: Mechanism) -> None:
    """Raise SecureAggregationError where the counts, if bounds adapt, are more than so many users can have."""
    counts = np.abs(total[sum(mechanism.partition.sizes) :])
    if mechanism.grid is not None and len(counts) and int(counts.max()) > users * int(mechanism.grid.count):
        raise SecureAggregationError("The counts of a masked sum are out of range. The step adds nothing.")


def session_run(run: str, directory: IdentityDirectory) -> str:
    """Return a run's name as sessions have it: with the digest of the directory, so that all hold the same one."""
    return run + directory.digest


def _question(phase: Phase, task: Task, parts: Mapping[str, bytes]) -> Envelope:
    _, header, envelope = task
    if phase == "mask":
        return Envelope(envelope.header, {**envelope.parts, **parts})
    return RoundHeader(protocol=PROTOCOL, run=header.run, step=header.step, user=header.user, phase=phase).sealed(parts)


def _take(server: MaskingServer, answer: Answer, found: MaskedStep) -> None:
    """Give a client's message to the session; one that breaks the protocol drops out."""
    message = b"" if answer.envelope is None else answer.envelope.parts.get(MESSAGE, b"")
    try:
        server.receive(answer.user, message)
    except SecureAggregationError:
        found.refused[answer.user] = "not masked"
    else:
        found.received[answer.user] = found.received.get(answer.user, 0) + answer.size
