"""Planning with correlated noise: what each number of bands gains at the same epsilon, sizes and steps.

The noise of two mechanisms is compared by the root mean square error of prefix sums, the sums of all releases so far:
that is what a linear server optimizer adds to the model. In such a plan `sigma_dp` means independent noise with this
error. `CorrelatedPlan.plan` has the `privacy.sigma_dp` to set, which is larger: what counts for privacy is the noise
before later steps take part of it back.

More bands cancel more noise, but users join more surely when it is their turn: b q instead of q. Up to some number of
bands the first effect is larger.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.privacy.noise.correlated import Correlated
from sottovoce.privacy.noise.strategies import Structure, independent_error
from sottovoce.privacy.planner import Accounting, Plan, epsilon_of, solve
from sottovoce.processes import Progress, no_progress

BANDS = tuple(2**power for power in range(10))


@dataclass(frozen=True, kw_only=True)
class CorrelatedPlan:
    """A solved plan with so many bands."""

    bands: int
    plan: Plan  # its sigma_dp is that of the configuration
    epsilon: float  # that it has
    gain: float  # the error of prefix sums, over that of independent noise of the same sigma_dp
    spread: float  # the std of the noise of one release, over sigma_dp

    @property
    def like(self) -> float:
        """The sigma_dp of independent noise with the same error of prefix sums."""
        return (self.plan.sigma_dp or 0.0) * self.gain


def correlated_plans(
    given: Plan,
    accounting: Accounting,
    bands: Iterable[int] | None = None,
    strategy: Structure = "toeplitz",
    progress: Progress = no_progress,
) -> list[CorrelatedPlan]:
    """Solve a plan for several numbers of bands; 1 is independent noise.

    Without `bands`, powers of 2 are tried, and those left out that are not possible: more bands than steps, groups of
    fewer than S users, or no solution. Raise PrivacyError where nothing is left.
    """
    steps = given.central_steps
    if steps is None:
        raise ConfigError("Give the number of steps: a strategy of correlated noise is made for it.")
    _ = given.unknown  # raises where not exactly one is missing
    found, problem, tried = [], PrivacyError("No bands were given."), list(BANDS if bands is None else bands)
    for done, count in enumerate(tried):
        progress("bands", done, len(tried))
        if bands is None and count > steps:
            break
        try:
            found.append(_solved(given, steps, accounting, Correlated(bands=count, steps=steps, strategy=strategy)))
        except PrivacyError as error:
            problem = error
            if bands is not None:
                raise
    progress("bands", len(tried), len(tried))
    if not found:
        raise problem
    return found


def _solved(given: Plan, steps: int, accounting: Accounting, noise: Correlated) -> CorrelatedPlan:
    gain = min(noise.matrix.prefix_error(steps) / independent_error(steps), 1.0)  # 1 band: above 1 by rounding
    sigma_dp = None if given.sigma_dp is None else given.sigma_dp / gain
    solved = solve(replace(given, sigma_dp=sigma_dp, noise=noise, sampling="cyclic"), accounting)
    reached = epsilon_of(solved, accounting)
    return CorrelatedPlan(bands=noise.bands, plan=solved, epsilon=reached, gain=gain, spread=noise.spread)
