"""Comparing what two groups of runs made public: field by field, over repeated draws.

A field is one value of one file: a key of a JSON document, a line of a text, the size of a file, a coordinate of the
model. The runs of a side differ in their randomness only. Two questions are asked of every field:

- Is it the same in all runs of each side, and different between the sides? Then it is a function of the user that no
  noise hides: a **certain** leak. With R runs of each side, a random field that has two values only does that in one
  of C(2R, R) / 2 cases, so `neighbours.py` makes more runs before it says so.
- Does it vary from run to run? Then it is noised, or depends on cohorts. Texts that repeat are tested by how rarely
  chance alone would keep the sides apart; numbers by the exact two-sample Kolmogorov-Smirnov test. The bound of
  Bonferroni holds for all fields together: on a correct run, with probability 95 % no field **differs**.

Coordinates of the model are compared bit by bit. Small steps leave some of them with few possible values, so that some
part the sides by chance. If the sides do not matter, any other way to deal the runs into two sides has as many such
coordinates; the model leaks where none has.

The first finds leaks without doubt. The second has little power with few runs (`least_p`) and proves nothing: whether
the noise is large enough is a matter of accounting.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from sottovoce.reading import parse_json

Value = str | float | bool | None
Fields = Mapping[str, Value]
_ABSENT = "(absent)"
_SUMMARIES = (": mean", ": norm")  # of tensors, whose coordinates are compared one by one
_FALSE_ALARMS = 0.05  # of all fields together
_MODEL_FALSE_ALARMS = 0.01  # of the model's coordinates: 5 runs of each side are enough for it


@dataclass(frozen=True)
class Finding:
    """A field that tells whether the user was there."""

    field: str
    kind: Literal["certain", "differs"]
    with_user: tuple[Value, ...]  # in every run
    without_user: tuple[Value, ...]
    p: float  # how likely it is that chance alone parts the sides like this

    @property
    def sentence(self) -> str:
        """The finding in words."""
        if self.kind == "certain":
            return (
                f"{self.field} tells whether the user was there: {self.with_user[0]!r} in every run with them, "
                f"{self.without_user[0]!r} in every run without."
            )
        return f"{self.field} differs between runs with and without the user (p = {self.p:.2g})."


@dataclass(frozen=True)
class Comparison:
    """What comparing two groups of runs has shown."""

    fields: int  # that were compared
    coordinates: int  # of the model, each compared bit by bit
    same: int  # fields that are the same in all runs
    varying: int  # fields that vary from run to run
    tested: int  # those of them that a test can be made of
    least_p: float  # the smallest p that so many runs can show
    threshold: float  # the largest p that counts
    findings: tuple[Finding, ...]

    @property
    def power(self) -> str:
        """What the tests of varying fields can show, in a sentence."""
        if self.least_p > self.threshold:
            return (
                f"Fields that vary show nothing at this size: p cannot be below {self.least_p:.2g}, and would have to "
                f"be below {self.threshold:.2g} for {self.tested} fields. More runs can show more."
            )
        return (
            f"Fields that vary are tested: a p below {self.threshold:.2g} counts, and {self.least_p:.2g} is possible."
        )


def compare(with_user: Sequence[Path], without_user: Sequence[Path]) -> Comparison:
    """Compare the folders of public files that runs with and without a user left behind."""
    sides = [[dict(_fields(folder)) for folder in side] for side in (with_user, without_user)]
    names = list(dict.fromkeys(name for side in sides for fields in side for name in fields))
    columns = {name: (_column(name, sides[0]), _column(name, sides[1])) for name in names}
    least_p = min(1.0, 2 / math.comb(len(with_user) + len(without_user), len(with_user)))
    findings = [Finding(name, "certain", *both, least_p) for name, both in columns.items() if _is_certain(name, *both)]
    coordinates, certain = _compare_models([with_user, without_user])
    findings += certain
    certainly = {finding.field for finding in findings}
    varying = {name: both for name, both in columns.items() if name not in certainly and len({*both[0], *both[1]}) > 1}
    tests = {name: p for name, (one, other) in varying.items() if (p := _p_value(one, other)) is not None}
    threshold = _FALSE_ALARMS / max(len(tests), 1)
    findings += [Finding(name, "differs", *varying[name], p=p) for name, p in tests.items() if p <= threshold]
    return Comparison(
        fields=len(columns),
        coordinates=coordinates,
        same=sum(len({*one, *other}) == 1 for one, other in columns.values()),
        varying=len(varying),
        tested=len(tests),
        least_p=least_p,
        threshold=threshold,
        findings=tuple(findings),
    )


def _column(name: str, side: Sequence[Fields]) -> tuple[Value, ...]:
    return tuple(fields.get(name, _ABSENT) for fields in side)


def _is_certain(name: str, one: Sequence[Value], other: Sequence[Value]) -> bool:
    return not name.endswith(_SUMMARIES) and len({*one}) == 1 and len({*other}) == 1 and one[0] != other[0]


def _p_value(one: Sequence[Value], other: Sequence[Value]) -> float | None:
    """Return how likely chance alone is to part the values like this; None where they say nothing."""
    values = [*one, *other]
    if all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        return _kolmogorov_smirnov(np.array(one, float), np.array(other, float))
    counts = Counter(values)
    if max(counts.values()) == 1:  # every run has a value of its own, such as a hash
        return None
    return 1.0 if {*one} & {*other} else _apart_by_chance(list(counts.values()), len(one), len(other))


def _kolmogorov_smirnov(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Return the exact two-sided p of the two-sample test; with equal values it is too large, which is safe.

    Each order of the values is a path on a grid, and all are as likely. Those are counted whose shares of both samples
    always lie closer together than the shares that were seen.
    """
    n, m = len(one), len(other)
    places = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(sample), places, side="right") for sample in (one, other)]
    distance = int(np.abs(m * shares[0] - n * shares[1]).max())  # times n m
    paths = [int(n * j < distance) for j in range(m + 1)]
    for i in range(1, n + 1):
        for j in range(m + 1):
            paths[j] = (paths[j] + (paths[j - 1] if j else 0)) if abs(m * i - n * j) < distance else 0
    return 1 - paths[m] / math.comb(n + m, n)


def _apart_by_chance(counts: Sequence[int], one: int, other: int) -> float:
    """Return in which share of all ways to deal the runs into two sides no value is on both."""
    ways = [1] + [0] * one  # by the number of runs dealt to the first side
    for count in counts:
        ways = [ways[size] + (ways[size - count] if size >= count else 0) for size in range(one + 1)]
    return ways[one] / math.comb(one + other, one)


def _fields(folder: Path) -> Iterator[tuple[str, Value]]:
    """Yield every value of every file; of a model its header, and the mean and norm of every tensor."""
    for file in sorted(folder.iterdir()):
        yield f"{file.name}", "is there"
        if file.suffix == ".safetensors":
            yield f"{file.name}: bytes", file.stat().st_size
            yield from _model_fields(file)
            continue
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            yield from _leaves(parse_json(text), f"{file.name}: ")
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if file.suffix == ".jsonl":
                yield from _leaves(parse_json(line), f"{file.name}, line {number}: ")
            else:
                yield f"{file.name}, line {number}", line


def _model_fields(file: Path) -> Iterator[tuple[str, Value]]:
    with safe_open(file, "np") as model:
        for key, value in (model.metadata() or {}).items():
            yield f"{file.name}: {key}", value
        for name in model.keys():  # noqa: SIM118 - not a dictionary
            tensor = model.get_tensor(name).astype(np.float64)
            yield f"{file.name}: {name}: shape", str(tensor.shape)
            yield f"{file.name}: {name}{_SUMMARIES[0]}", float(tensor.mean())
            yield f"{file.name}: {name}{_SUMMARIES[1]}", float(np.linalg.norm(tensor))


def _leaves(document: Any, prefix: str) -> Iterator[tuple[str, Value]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _leaves(value, f"{prefix}{key}.")
        yield f"{prefix}keys", " ".join(document)
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from _leaves(value, f"{prefix}{place}.")
        yield f"{prefix}length", len(document)
    else:
        yield prefix.rstrip(".: "), document


def _compare_models(sides: Sequence[Sequence[Path]]) -> tuple[int, list[Finding]]:
    """Compare the coordinates of all models bit by bit; return their number, and a finding where they leak."""
    total, found = 0, Counter[bytes]()
    first: tuple[str, int, float, float] | None = None
    runs = len(sides[0])
    by_side = np.packbits([*(True for _ in sides[0]), *(False for _ in sides[1])]).tobytes()
    for name, values in _tensors([file for side in sides for folder in side for file in folder.glob("*.safetensors")]):
        total += values.shape[1]
        parted = list(_parted(values.view(np.uint32), runs))
        found.update(dealt for _, dealt in parted)
        place = next((place for place, dealt in parted if dealt == by_side), None)
        if first is None and place is not None:
            first = name, place, float(values[0, place]), float(values[-1, place])
    here = found.pop(by_side, 0)
    ways = math.comb(runs + len(sides[1]), runs) / 2  # each is the same as the one with the sides swapped
    p = (1 + sum(count >= here for count in found.values())) / ways
    if first is None or p > _MODEL_FALSE_ALARMS:
        return total, []
    name, place, *values_of_sides = first
    several = f"{here:,} coordinates, the first being {place} of {name},"
    label = f"The model: {several if here > 1 else f'coordinate {place} of {name}'}"
    return total, [Finding(label, "certain", (values_of_sides[0],), (values_of_sides[1],), p)]


def _tensors(files: Sequence[Path]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Yield every tensor with a row for each model; those that not all models have, in one shape, are left out."""
    with contextlib.ExitStack() as opened:
        models = [opened.enter_context(safe_open(file, "np")) for file in files]
        for name in sorted(set.intersection(*(set(model.keys()) for model in models))) if models else ():
            rows = [np.asarray(model.get_tensor(name), np.float32).ravel() for model in models]
            if len({row.size for row in rows}) == 1:
                yield name, np.stack(rows)


def _parted(values: npt.NDArray[np.uint32], runs: int) -> Iterator[tuple[int, bytes]]:
    """Yield the coordinates with two values, one in `runs` of the runs; and which runs share the first run's value."""
    as_first = values == values[0]
    second = np.take_along_axis(values, np.argmin(as_first, axis=0)[None], axis=0)
    two = (as_first | (values == second)).all(axis=0) & (as_first.sum(axis=0) == runs)
    for place in np.flatnonzero(two):
        yield int(place), np.packbits(as_first[:, place]).tobytes()
