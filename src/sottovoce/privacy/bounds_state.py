"""The clip bounds that adapt, as the state of a run: they begin, hold in a step, and follow from its release.

They are kept among the vectors of the server's state, so a checkpoint holds them, the ledger names its hash, and a
resumed run continues with the same bits. Without adaptive clipping there is nothing to keep, and all of this does
nothing.
"""

from dataclasses import replace

import torch
from torch import Tensor

from sottovoce.errors import PrivacyError
from sottovoce.optim import State
from sottovoce.privacy.adaptive import next_bounds
from sottovoce.privacy.mechanism import Mechanism

BOUNDS = "clip_norms"  # their name in the state
Bounds = tuple[float, ...]


def start_bounds_(state: State, mechanism: Mechanism) -> None:
    """Put the bounds of the first step into the state of a run."""
    if mechanism.privacy.adapts:
        set_bounds_(state, mechanism.clip_norms)


def mechanism_of_step(mechanism: Mechanism, state: State) -> Mechanism:
    """Return the mechanism with the bounds that the state holds for the next step."""
    if not mechanism.privacy.adapts:
        return mechanism
    if BOUNDS not in state.vectors:
        raise PrivacyError("The state of this run holds no clip bounds, but they adapt. Start it with `start_bounds_`.")
    return replace(mechanism, bounds=tuple(state.vectors[BOUNDS].tolist()))


def bounds_after(mechanism: Mechanism, total: Tensor) -> Bounds | None:
    """Return the bounds of the next step from the noised sum of this one; None where bounds do not adapt."""
    grid, bounds = mechanism.grid, mechanism.clip_norms
    if grid is None or bounds is None:
        return None
    unit = mechanism.participation.weight_bound / (2 * grid.count * mechanism.divisor)
    fractions = [count * unit + 0.5 for count in total[-len(bounds) :].tolist()]
    return next_bounds(bounds, fractions, mechanism.privacy.adaptive)


def set_bounds_(state: State, bounds: Bounds | None) -> None:
    """Put the bounds of the next step into the state of a run; None changes nothing."""
    if bounds is not None:
        state.vectors[BOUNDS] = torch.tensor(bounds, dtype=torch.float64)
