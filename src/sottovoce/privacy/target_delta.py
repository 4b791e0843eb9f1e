"""Which delta is small enough: below 1/K, and better below 1/K^1.1.

At delta = 1/K, publishing all audio of one random user is allowed at epsilon 0. So an epsilon at such a delta says
nothing, and is refused unless asked for. Below it, with a cohort of at least one user (`Participation` requires that),
q >= 1/K is above delta: no user is drawn so seldom that delta alone covers it.
"""

from collections.abc import Collection

from sottovoce.errors import ConfigError
from sottovoce.privacy.acceptance import Acceptance, require_accepted

ACCEPT_LARGE_DELTA = "--accept large_delta"  # the option of commands
_POWER = 1.1  # deltas above K to the minus this are worth a word


def require_delta(target_delta: float) -> None:
    """Raise ConfigError where a delta is not between 0 and 1."""
    if not 0 < target_delta < 1:
        raise ConfigError(f"Expected 0 < target_delta={target_delta:g} < 1.")


def too_large(target_delta: float, population: float) -> bool:
    """Return whether a delta is not below 1/K."""
    return target_delta * population >= 1 or target_delta >= 1 / max(population, 1)  # 1/49 * 49 is rounded below 1


def delta_caution(target_delta: float, population: int) -> str | None:
    """Return one line where delta is not below 1/K^1.1, and None where it is."""
    if too_large(target_delta, population):
        return f"{_not_below(target_delta, population)} Choose a smaller delta."
    if target_delta * float(population) ** _POWER >= 1:
        return (
            f"delta {target_delta:g} is hardly below 1/K = {1 / population:g}. Choose one below 1/K^1.1 = "
            f"{float(population) ** -_POWER:.2g}."
        )
    return None


def require_small_delta(
    target_delta: float, population: int, accepted: Collection[Acceptance] = (), *, how: str | None = None
) -> None:
    """Raise PrivacyError where delta is not below 1/K, unless that is accepted; `how` names the option that does so."""
    if too_large(target_delta, population):
        problem = _not_below(target_delta, population)
        require_accepted("large_delta", accepted, problem, "Choose a smaller delta.", how=how)


def _not_below(target_delta: float, population: int) -> str:
    return (
        f"delta {target_delta:g} is not below 1/K = {1 / population:g}: publishing all audio of one random user would "
        "meet it with epsilon 0."
    )
