"""The release: everything that happens between the integer sum of a cohort and the average that the server learns from.

In the paper's order:

    1. shrink     with q_min only: a cohort that weighs more than the divisor is scaled down
    2. noise      once, on the whole sum
    3. charge     the ledger, before anything depends on the noised sum
    4. average    divide by the public divisor

Every training releases its sums by this function alone. (`federated/step.py` writes the same arithmetic out for
reading, without a ledger; tests compare the two.) The function gives the sum to nobody. That no other process holds it
is the aggregator's promise.
"""

import hashlib
from dataclasses import dataclass

from torch import Tensor

from sottovoce.errors import PrivacyError
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import NoiseState
from sottovoce.randomness import Randomness


@dataclass(frozen=True)
class Diagnosis:
    """The parts of a release, for diagnostics. They are private and must not leave the server."""

    noise: Tensor | None  # its average; None where there is no noise
    users_divisor: float  # what the users' own sum was divided by


@dataclass(frozen=True)
class Released:
    """The outcome of one release: a public average, and what stays on the server."""

    average: Tensor  # public, in float32
    noise_state: NoiseState  # secret: for the next release
    diagnosis: Diagnosis | None  # private; None where diagnostics are off


def release(
    t: int,
    total: Tensor,
    cohort_weight: int,
    *,
    mechanism: Mechanism,
    seed: int,
    noise_state: NoiseState,
    ledger: Ledger | None = None,
) -> Released:
    """Release the integer sum of central step t; the sum's memory is reused.

    `cohort_weight` is the weight of the users that took part, in units of `Mechanism.weight_unit`. Where the ledger
    refuses the charge, PrivacyError is raised and nothing is released.

    After a kill, a step may be repeated with a different sum. Seeded noise that was already released on the first sum
    must not be used on the second: their difference would be free of noise. The ledger then refuses the draw, and the
    noise is drawn again from another stream. Noise with a memory accounts for the whole run at once, so a second
    release of one step is refused.
    """
    diagnosed = mechanism.privacy.diagnostics
    mechanism.shrink_(total, cohort_weight)
    users = total.clone() if diagnosed and any(mechanism.noise_stds) else None

    attempt = 0
    next_state = mechanism.add_noise_(total, _draw(mechanism, seed, t, attempt), noise_state)
    if noise_state.vectors and ledger is not None and ledger.repeats(t, _digest(total)):
        raise PrivacyError(
            f"Step {t} was released before a kill, and noise with a memory cannot be drawn again. Start a new run."
        )
    while ledger is not None and not ledger.charge(t, attempt, _digest(total)):
        mechanism.add_noise_(total, _draw(mechanism, seed, t, attempt), noise_state, sign=-1)
        attempt += 1
        next_state = mechanism.add_noise_(total, _draw(mechanism, seed, t, attempt), noise_state)

    diagnosis = None
    if diagnosed:
        noise = None if users is None else mechanism.average(total - users)
        diagnosis = Diagnosis(noise, mechanism.users_divisor(cohort_weight))
    return Released(mechanism.average(total), next_state, diagnosis)


def _draw(mechanism: Mechanism, seed: int, t: int, attempt: int) -> Randomness:
    return mechanism.randomness(seed, "noise", t, *([attempt] if attempt else []))


def _digest(total: Tensor) -> str:
    return hashlib.sha256(total.cpu().numpy().data).hexdigest()
