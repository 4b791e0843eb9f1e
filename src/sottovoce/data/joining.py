"""Joining short utterances of one speaker into longer ones: spoken digits become strings of digits.

Only whole recordings are joined. Promises: every utterance is used exactly once, or `times` times, each time in other
company; which ones stand together, in which order and with which pauses depends only on the seed and the speaker; what
cannot be placed (fewer utterances than the least) is listed.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sottovoce.data.manifest import Entry, Reason, Rejection
from sottovoce.errors import ConfigError
from sottovoce.randomness import stream

_PAUSE_SECONDS = (0.05, 0.25)


class Joining(BaseModel):
    """How many utterances one joined utterance takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    least: int = Field(ge=1, description="the fewest utterances in one")
    most: int = Field(ge=1, description="the most utterances in one")
    times: int = Field(1, ge=1, description="how many times every utterance is used, each time in other company")
    seed: int = Field(0, description="the seed of the order, the lengths and the pauses")

    @model_validator(mode="after")
    def _in_order(self) -> "Joining":
        if self.least > self.most:
            raise ValueError(f"Expected least={self.least} <= most={self.most}.")
        return self

    @classmethod
    def parse(cls, text: str, times: int, seed: int) -> "Joining":
        """Read "2:5"."""
        try:
            least, most = (int(part) for part in text.split(":"))
            return cls(least=least, most=most, times=times, seed=seed)
        except ValueError:
            raise ConfigError(f"Expected --concatenate LEAST:MOST such as 2:5, not {text!r}.") from None


def join_entries(entries: Iterable[Entry], joining: Joining) -> Iterator[Entry | Rejection]:
    """Yield the joined utterances of every speaker."""
    ordered = sorted(entries, key=attrgetter("speaker", "utterance"))
    for entry in ordered:
        if entry.start is not None or entry.segment_seconds is not None or entry.channel is not None:
            raise ConfigError(f"{entry.utterance} is a part of a recording; only whole recordings can be joined.")
    for speaker, group in groupby(ordered, key=attrgetter("speaker")):
        mine = list(group)
        rng = stream(joining.seed, "join", speaker)
        groups = [group for _ in range(joining.times) for group in _grouped(mine, joining, rng)]
        digits = len(str(len(groups)))
        for number, parts in enumerate(groups):
            yield _joined(f"{speaker}-joined-{number:0{digits}d}", parts, rng)
        used = {entry.utterance for parts in groups for entry in parts}
        for entry in [entry for entry in mine if entry.utterance not in used]:
            detail = f"{speaker} has {len(mine)}, which cannot be joined by {joining.least} to {joining.most}"
            yield Rejection(entry.utterance, speaker, Reason.TOO_FEW_TO_JOIN, detail)


def _grouped(entries: list[Entry], joining: Joining, rng: np.random.Generator) -> list[list[Entry]]:
    """Return the utterances in a random order, cut into groups to be joined."""
    shuffled = iter([entries[place] for place in rng.permutation(len(entries))])
    return [list(islice(shuffled, size)) for size in _sizes(len(entries), joining, rng)]


def _sizes(count: int, joining: Joining, rng: np.random.Generator) -> list[int]:
    """Return sizes between least and most that use up `count` utterances, or as many of them as possible."""
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
    """Return whether `count` is a sum of sizes from least to most."""
    return count >= 0 and -(-count // joining.most) * joining.least <= count


def _joined(name: str, parts: list[Entry], rng: np.random.Generator) -> Entry:
    first = parts[0]
    common = {key: value for key, value in first.extra.items() if all(part.extra.get(key) == value for part in parts)}
    pauses = rng.uniform(*_PAUSE_SECONDS, size=len(parts) - 1).round(3)
    return Entry(
        utterance=name,
        speaker=first.speaker,
        text=" ".join(part.text for part in parts),
        language=first.language,
        paths=tuple(path for part in parts for path in part.paths),
        pauses=tuple(float(pause) for pause in pauses),
        bytes=sum(part.bytes for part in parts),
        modified_ns=max(part.modified_ns for part in parts),
        parts=tuple(part.utterance for part in parts),
        extra=common,
    )
