"""Joining short utterances of a speaker into longer ones: spoken digits become strings of digits.

Only whole recordings are joined. Guarantees: every utterance is used once, or `times` times with other neighbours each
time; the groups, their order and the pauses depend only on the seed and the speaker; utterances that fit into no group
(a speaker has fewer than `least`) are listed as rejected.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sottovoce.data.manifest import Entry, Reason, Rejection
from sottovoce.errors import ConfigError
from sottovoce.limits import LARGEST_WHOLE
from sottovoce.randomness import stream

_PAUSE_SECONDS = (0.05, 0.25)
_MOST = 10_000  # utterances in one


class Joining(BaseModel):
    """How many utterances are joined into one.

    Example:
        prepare(Table(file=Path("audiomnist/index.tsv")), "stores/digits", joining=Joining(least=2, most=5))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    least: int = Field(ge=1, le=_MOST, description="smallest number of utterances to join")
    most: int = Field(ge=1, le=_MOST, description="largest number of utterances to join")
    times: int = Field(
        1, ge=1, le=1000, description="how many times every utterance is used, with other neighbours each time"
    )
    seed: int = Field(0, ge=0, le=LARGEST_WHOLE, description="seed of the order, the group sizes and the pauses")

    @model_validator(mode="after")
    def _in_order(self) -> "Joining":
        if self.least > self.most:
            raise ValueError(f"Expected least={self.least} <= most={self.most}")
        return self

    @classmethod
    def parse(cls, text: str, times: int, seed: int) -> "Joining":
        """Read a range such as "2:5"."""
        try:
            least, most = (int(part) for part in text.split(":"))
            return cls(least=least, most=most, times=times, seed=seed)
        except ValueError:
            raise ConfigError(
                f"Expected --concatenate LEAST:MOST such as 2:5, of at most {_MOST:,}, not {text[:100]!r}."
            ) from None


def join_entries(entries: Iterable[Entry], joining: Joining) -> Iterator[Entry | Rejection]:
    """Yield the joined utterances of every speaker, and a rejection for every utterance that is left over."""
    ordered = sorted(entries, key=attrgetter("speaker", "utterance"))
    for entry in ordered:
        if entry.start is not None or entry.segment_seconds is not None or entry.channel is not None:
            raise ConfigError(f"{entry.utterance} is a part of a recording. Only whole recordings can be joined.")
    for speaker, group in groupby(ordered, key=attrgetter("speaker")):
        spoken = list(group)
        rng = stream(joining.seed, "join", speaker)
        groups = [group for _ in range(joining.times) for group in _grouped(spoken, joining, rng)]
        digits = len(str(len(groups)))
        for number, parts in enumerate(groups):
            yield _joined(f"{speaker}-joined-{number:0{digits}d}", parts, rng)
        used = {entry.utterance for parts in groups for entry in parts}
        for entry in [entry for entry in spoken if entry.utterance not in used]:
            detail = f"{speaker} has {len(spoken)}, which cannot be joined by {joining.least} to {joining.most}"
            yield Rejection(entry.utterance, speaker, Reason.TOO_FEW_TO_JOIN, detail)


def _grouped(entries: list[Entry], joining: Joining, rng: np.random.Generator) -> list[list[Entry]]:
    """Return the utterances in random order, cut into groups to join."""
    shuffled = iter([entries[place] for place in rng.permutation(len(entries))])
    return [list(islice(shuffled, size)) for size in _sizes(len(entries), joining, rng)]


def _sizes(count: int, joining: Joining, rng: np.random.Generator) -> list[int]:
    """Return sizes between least and most whose sum is `count`, or as close to it as possible."""
    while count and not _divides(count, joining):
        count -= 1
    sizes: list[int] = []
    while count:
        possible = [size for size in range(joining.least, joining.most + 1) if _divides(count - size, joining)]
        size = int(rng.choice(possible))
        sizes.append(size)
        count -= size
    return sizes


def _divides(count: int, joining: Joining) -> bool:
    """Return whether `count` is a sum of sizes between least and most."""
    return count >= 0 and -(-count // joining.most) * joining.least <= count


def _joined(name: str, parts: list[Entry], rng: np.random.Generator) -> Entry:
    first = parts[0]
    common = {key: value for key, value in first.extra.items() if all(part.extra.get(key) == value for part in parts)}
    pauses = rng.uniform(*_PAUSE_SECONDS, size=len(parts) - 1).round(3)
    return Entry(
        utterance=name,
        speaker=first.speaker,
        text=" ".join(part.text for part in parts if part.text),
        language=first.language,
        paths=tuple(path for part in parts for path in part.paths),
        pauses=tuple(float(pause) for pause in pauses),
        bytes=sum(part.bytes for part in parts),
        modified_ns=max(part.modified_ns for part in parts),
        parts=tuple(part.utterance for part in parts),
        full_reference=_joined_reference(parts),
        extra=common,
    )


def _joined_reference(parts: list[Entry]) -> str | None:
    """Return the full reference of joined utterances; None where their texts are complete."""
    if all(part.full_reference is None for part in parts):
        return None
    return " ".join(part.text if part.full_reference is None else part.full_reference for part in parts)
