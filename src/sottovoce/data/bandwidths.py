"""The bandwidth of populations: what a model has heard, and whether other speech is outside of it.

A band is a range of bandwidths in Hz. Stores of earlier versions do not know the bandwidth of their utterances: nothing
is said about them.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sottovoce.data.manifest import BANDWIDTH
from sottovoce.data.population import Population
from sottovoce.data.store import PreparationRecord, Store
from sottovoce.features.bandwidth import FULL_HZ, BandRange
from sottovoce.features.specaugment import SpecAugment

Bandwidths = npt.NDArray[np.int64]

NARROW_HZ = 6000  # 8 kHz recordings have 3,400 to 4,000; of 16 kHz, lossy codecs leave 7,000
_FEW = 0.05  # a share of utterances that is not worth a warning
_HEARD = (0.05, 0.95)  # the quantiles between which a model has heard enough
_TOLERANCE = 0.75  # a ratio of bandwidths that makes little difference
_SEE = "See Bandwidth in docs/data.md."


def bandwidths_of(population: Population) -> Bandwidths:
    """Return the known bandwidths of a population's utterances; none where the store does not know them."""
    store, rows = population.store, population.all_rows()
    if BANDWIDTH not in store.index_columns():
        return np.zeros(0, np.int64)
    column = store.index([BANDWIDTH])[BANDWIDTH].to_numpy()[rows]
    return np.asarray(column[np.isfinite(column)], np.int64)


def heard_in(population: Population, augment: SpecAugment | None) -> BandRange | None:
    """Return the band that a model hears in training on this population; None where it is not known."""
    return _augmented(_band(bandwidths_of(population)), augment)


def declared_band(store: Store, augment: SpecAugment | None) -> BandRange | None:
    """Return the band that a store was limited to on purpose; None where it was not.

    It comes from the configuration alone, so it says nothing about the people who speak.
    """
    request = store.info.request
    limit = request.bandwidth_hz if isinstance(request, PreparationRecord) else None
    return None if limit is None else _augmented(BandRange(limit, limit), augment)


def _band(bandwidths: Bandwidths) -> BandRange | None:
    if not len(bandwidths):
        return None
    low, high = np.quantile(bandwidths, _HEARD, method="nearest")
    return BandRange(int(low), int(high))


def _augmented(band: BandRange | None, augment: SpecAugment | None) -> BandRange | None:
    """Return the band of training data of which a share is band-limited at random."""
    if band is None or augment is None or augment.bandlimit <= _FEW:
        return band
    return BandRange(min(band.low_hz, round(augment.bandlimit_hz[0])), band.high_hz)


def difference(
    heard: BandRange | None, bandwidths: Bandwidths | Sequence[int], what: str, model: str = "the model"
) -> str | None:
    """Return a line on how speech differs from what a model has heard; None where it does not, or either is unknown.

    `what` names the speech, such as "utterances of dev", and `model` the model.
    """
    found = np.asarray(bandwidths, np.int64)
    if heard is None or not len(found):
        return None
    outside = found[(found < _TOLERANCE * heard.low_hz) | (_TOLERANCE * found > heard.high_hz)]
    if len(outside) <= _FEW * len(found):
        return None
    verb = "has" if len(outside) == 1 else "have"
    return (
        f"Note: {len(outside):,} of {len(found):,} {what} {verb} a bandwidth of about {int(np.median(outside)):,} Hz; "
        f"{model} was trained on {_in_words(heard)}. Expect more errors. {_SEE}"
    )


def _in_words(band: BandRange) -> str:
    low, high = band
    return f"{high:,} Hz" if low >= _TOLERANCE * high else f"{low:,} to {high:,} Hz"


def store_note(store: Store) -> str | None:
    """Return a line about a store that is band-limited or mixed; None for wideband, unknown, and limited on purpose."""
    if declared_band(store, None) is not None:
        return None
    found = bandwidths_of(Population.of(store))
    narrow = found[found < NARROW_HZ]
    if len(narrow) <= _FEW * len(found):
        return None
    share = f"{len(narrow):,} of {len(found):,} utterances have nothing above about {int(np.median(narrow)):,} Hz"
    if len(narrow) >= (1 - _FEW) * len(found):
        return f"Note: {share}. A model trained on them will fail on wideband speech, and the other way round. {_SEE}"
    return f"Note: {share}, the others up to {FULL_HZ:,} Hz: the store is mixed. {_SEE}"
