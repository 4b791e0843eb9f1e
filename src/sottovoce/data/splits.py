"""Splits of speakers into two disjoint parts, each a sorted list of names.

A random split orders the speakers by a hash of the seed and the speaker's name. It is therefore the same on every
machine and for any order of the speakers, and the 5 % part lies inside the 10 % part of the same seed. No split divides
the utterances of one speaker.
"""

import re
from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from sottovoce.data.store import Store
from sottovoce.errors import ConfigError, DataError
from sottovoce.randomness import rank

_FRACTION = re.compile(r"[\d./]{1,60}(?:[eE]-?\d{1,2})?", re.ASCII)  # 1e-999999999 would take minutes

Split = tuple[list[str], list[str]]  # the chosen speakers and the rest


def as_fraction(value: object) -> Fraction:
    """Return 0.1, "0.1" or "1/10" as it is written, which no float is; raise ValueError unless it is in (0, 1)."""
    text = str(value)
    try:
        share = Fraction(text) if _FRACTION.fullmatch(text) else Fraction(0)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share < 1:
        raise ValueError(f"expected a fraction between 0 and 1, such as 0.1 or 1/20, not {text[:100]}")
    return share


def split_by_fraction(speakers: Sequence[str], fraction: str | float, seed: int) -> Split:
    """Return a random part of the speakers and the rest.

    The size of the part is rounded down, as in the paper: 10 % of 34,753 speakers are 3,475. The fraction is taken
    as it is written, so 0.29 of 100 speakers are 29; "1/3" is possible too.
    """
    try:
        share = as_fraction(fraction)
    except ValueError as error:
        raise ConfigError(f"The share of speakers: {error}.") from None
    return split_by_count(speakers, int(share * len(speakers)), seed)


def split_by_count(speakers: Sequence[str], count: int, seed: int) -> Split:
    """Return `count` random speakers and the rest."""
    if not 0 < count < len(speakers):
        raise ConfigError(f"Expected 0 < count={count} < {len(speakers)} speakers: no part may be empty.")
    order = rank(seed, "split", speakers)
    return sorted(order[:count]), sorted(order[count:])


def split_by_list(speakers: Sequence[str], chosen: Sequence[str]) -> Split:
    """Return the chosen speakers and the rest."""
    unknown = set(chosen) - set(speakers)
    if unknown:
        raise DataError(f"Speaker {min(unknown)!r} of the list is not in the store. Check the list.")
    rest = sorted(set(speakers) - set(chosen))
    if not rest or not chosen:
        raise ConfigError(f"The list names {len(set(chosen))} of {len(speakers)} speakers: no part may be empty.")
    return sorted(set(chosen)), rest


def split_by_column(store: Store, column: str, value: str) -> Split:
    """Return the speakers whose utterances all have `value` in a column of the index, and the rest.

    A speaker with matching and other utterances would be in both parts, so it is an error.
    """
    names, some_match, all_match = _matches_by_speaker(store, column, value)
    mixed = [name for name, some, every in zip(names, some_match, all_match, strict=True) if some and not every]
    if mixed:
        raise DataError(
            f"Speaker {mixed[0]!r} has utterances with and without {column}={value}. Split by a list instead."
        )
    chosen = [name for name, every in zip(names, all_match, strict=True) if every]
    if not chosen or len(chosen) == len(names):
        raise DataError(f"{len(chosen)} of {len(names)} speakers have {column}={value}: no part may be empty.")
    return split_by_list(names, chosen)


def _matches_by_speaker(store: Store, column: str, value: str) -> tuple[list[str], list[bool], list[bool]]:
    """Return every speaker, and whether some and whether all of their utterances have the value."""
    if column not in store.index_columns():
        raise DataError(f"{store.path} has no column {column!r}. It has: {', '.join(store.index_columns())}.")
    if pa.types.is_nested(store.index_schema().field(column).type):
        raise DataError(
            f"Column {column!r} holds lists, not single values. Split by another column or by a list of speakers."
        )
    matches = pc.fill_null(pc.equal(pc.cast(store.index([column])[column], pa.string()), value), False)
    table = store.index(["speaker"]).append_column("match", matches)
    groups = table.group_by("speaker", use_threads=False).aggregate([("match", "any"), ("match", "all")])
    return groups["speaker"].to_pylist(), groups["match_any"].to_pylist(), groups["match_all"].to_pylist()
