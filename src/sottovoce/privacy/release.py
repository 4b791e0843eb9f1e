"""The release: everything that happens between the integer sum of a cohort and the average that the server learns from.

In the paper's order:

    1. shrink     with q_min only: a cohort that weighs more than the divisor is scaled down
    2. noise      once, on the whole sum; it was drawn before (`step_noise.py`)
    3. charge     the ledger, before anything depends on the noised sum
    4. average    divide by the public divisor; where clip bounds adapt, the noised counts give those of the next step

Every training releases its sums by this function alone. (`federated/step.py` writes the same arithmetic out for
reading, without a ledger; tests compare the two.) The function gives the sum to nobody. That no other process holds it
is the aggregator's promise.
"""

import hashlib
from dataclasses import dataclass

from torch import Tensor

from sottovoce.errors import PrivacyError
from sottovoce.privacy.bounds_state import Bounds, bounds_after
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.noise import NoiseState
from sottovoce.privacy.step_noise import DrawnNoise


@dataclass(frozen=True)
class Diagnosis:
    """Norms of the parts of a release, by layer. They are private and must not leave the server."""

    signal_norms: Tensor  # of the average without noise
    noise_norms: Tensor | None  # of what the noise adds to the average; None where there is no noise
    users_divisor: float  # what the users' own sum was divided by


@dataclass(frozen=True)
class Released:
    """The outcome of one release: a public average, and what stays on the server."""

    average: Tensor  # public, in float32
    noise_state: NoiseState  # secret: for the next release
    diagnosis: Diagnosis | None  # private; None where diagnostics are off
    bounds: Bounds | None = None  # public: the clip bounds of the next step, where they adapt


def release(t: int, total: Tensor, cohort_weight: int, *, noise: DrawnNoise, ledger: Ledger | None = None) -> Released:
    """Release the integer sum of central step t; the sum's memory is reused, and the noise is used up.

    `cohort_weight` is the weight of the users that took part, in units of `Mechanism.weight_unit`. PrivacyError is
    raised, and nothing is released, where the noise is not that of this step or was used before, and where the ledger
    refuses the charge.

    After a kill, a step may be repeated with a different sum. Seeded noise that was already released on the first sum
    must not be used on the second: their difference would be free of noise. The ledger then refuses the draw, and this
    process draws the noise again from other streams. Noise with a memory accounts for the whole run at once, so a
    second release of one step is refused, unless its cohort is another one (secure randomness) and the noise can start
    afresh.
    """
    mechanism = noise.mechanism
    mechanism.shrink_(total, cohort_weight)
    signal_norms = mechanism.average_norms(total) if mechanism.diagnostics else None
    noise.add_to_(total, t)
    first = bool(noise.request.state.vectors)  # nobody may have released this step before
    if first and ledger is not None and ledger.repeats(t, _digest(total)):
        if not mechanism.may_restart:
            raise PrivacyError(
                f"Step {t} was released before a kill, and noise with a memory cannot be drawn again. Start a new run."
            )
        first, noise = False, noise.start_afresh_(total)
        noise.add_to_(total, t)
    while ledger is not None and not ledger.charge(t, noise.request.attempt, _digest(total), first=first):
        noise = noise.take_back_(total)
        noise.add_to_(total, t)

    diagnosis = None
    if signal_norms is not None:
        diagnosis = Diagnosis(signal_norms, noise.average_norms(), mechanism.users_divisor(cohort_weight))
    return Released(mechanism.average(total), noise.next_state, diagnosis, bounds_after(mechanism, total))


def _digest(total: Tensor) -> str:
    return hashlib.sha256(total.cpu().numpy().data).hexdigest()
