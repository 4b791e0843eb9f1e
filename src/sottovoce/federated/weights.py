"""The weight of each user of a cohort, as a whole multiple of a public unit."""

import numpy as np
import numpy.typing as npt

from sottovoce.data.population import Population
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.privacy.mechanism import WEIGHTS
from sottovoce.privacy.privacy_options import Participation

Users = npt.NDArray[np.int64]


def user_weights(population: Population, cohort: Users, options: Participation) -> Users:
    """Return min(weight, weight_bound) of every user, rounded down to multiples of weight_bound / WEIGHTS."""
    if options.weight == "one":
        return np.full(len(cohort), WEIGHTS, dtype=np.int64)
    rows = [population.rows_of(int(user)) for user in cohort]
    if options.weight == "utterances":
        counted = np.array([len(mine) for mine in rows], dtype=np.float64)
    else:
        counted = np.array([population.store.frames_of(mine).sum() for mine in rows]) / FRAMES_PER_SECOND
    weights: Users = np.floor(np.minimum(counted / options.weight_bound, 1.0) * WEIGHTS).astype(np.int64)
    return weights
