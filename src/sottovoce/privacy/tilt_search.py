"""Epsilon and delta by tilted FFTs: the choice of tilts, windows and grids, and the sum over numbers of large losses.

One tilt is enough where many releases share in the loss that decides delta. Where q is small, that loss comes from one
or two releases in which the noise was far out: no tilt makes both the many small losses and the few large ones likely,
and rounding errors of the small ones drown the large ones. Then the losses p of a release are cut in two, p = small +
large, and the binomial theorem gives

    p^T = sum over k of binomial(T, k) small^(T - k) large^k,

whose terms each have a tilt, a window and a grid of their own. More than `k` large losses have a probability of at most
mu^(k+1) / (k+1)!, with mu the expected number of large losses; that is added to delta.

Nothing here needs to be exact: whatever is chosen, `tilted_losses.py` gives upper bounds.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from sottovoce.privacy.events import REPLACE, Counts, Event
from sottovoce.privacy.loss_masses import Direction, Floats, Masses, legendre, losses_at, masses, reach
from sottovoce.privacy.tilted_losses import Composed, Window, compose, log_sum

_NEGLIGIBLE = 1e-5  # the share of delta that may be lost each: above a window, beyond a grid, by more large losses
_OUTSIDE = 1e-8  # the tilted mass that may lie below a window, or above it
_FINEST = 32  # intervals of the grid in a standard deviation of the loss of one release
_POINTS = (1 << 14, 1 << 20)  # the fewest and the most intervals of a window
_GRID_OF_ONE = 1 << 20  # the most intervals of the losses of one release
_LARGE = 1e-5  # the expected number of large losses
_TILTS = np.geomspace(1e-4, 1e9, 131)
# The largest (1 - exp(epsilon - l)) exp(-tilt (l - epsilon)) over l > epsilon, as a logarithm.
_HIGHEST = -_TILTS * np.log1p(1 / _TILTS) - np.log1p(_TILTS)
_PANELS = 300  # of the rough integrals that choose tilt and window
_ROUNDS = 5  # of moving the windows
_GAIN = 5e-4  # a smaller gain in epsilon is not worth another round
_CLOSE = 0.3  # tilts that differ by less than this, as logarithms, give about the same bound
_SMALLEST_DELTA = 1e-200


def tilted_epsilon(events: Counts, target_delta: float) -> float | None:
    """Return an upper bound on epsilon at a delta, for everything that happened; None where it is not computed."""
    largest = 0.0
    for direction in _directions(events):
        if direction == "add" and largest >= _most_by_adding(events):
            continue
        epsilon = _epsilon(events, direction, target_delta)
        if epsilon is None:
            return None
        largest = max(largest, epsilon)
    return largest


def tilted_delta(events: Counts, epsilon: float) -> float | None:
    """Return an upper bound on delta at an epsilon >= 0, for everything that happened; None where not computed."""
    found = [_delta(events, direction, epsilon) for direction in _directions(events)]
    return None if None in found else max(delta for delta in found if delta is not None)


def _directions(events: Counts) -> Sequence[Direction]:
    if any(event.adjacency == REPLACE for event in events):
        return ("symmetric",)
    return ("remove", "add") if any(event.sampling_prob < 1.0 for event in events) else ("remove",)


def _most_by_adding(events: Counts) -> float:
    """Return the largest loss where a user is added: the mixture's density is at least 1 - q of the Gaussian's."""
    if any(event.sampling_prob == 1.0 for event in events):
        return math.inf
    return math.fsum(-count * math.log1p(-event.sampling_prob) for event, count in events.items()) * (1 + 1e-9)


@dataclass(frozen=True)
class _Piece:
    """The losses of one kind of release from `low` to below `high`, `count` times."""

    event: Event
    count: int
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class _Term:
    """Some releases with small losses and some with large ones, and in how many ways they can be chosen."""

    pieces: tuple[_Piece, ...]
    log_weight: float = 0.0


@dataclass(frozen=True)
class _Sum:
    """Upper bounds on the delta of all terms together."""

    terms: Sequence[Composed]
    outside: float  # infinite losses, and more large losses than any term has

    @property
    def low(self) -> float:
        """The smallest epsilon that all windows allow."""
        return max(*(term.low for term in self.terms), 0.0)

    def delta(self, epsilon: float, *, certified: bool = True) -> float:
        """Return an upper bound on delta."""
        return min(math.fsum(term.delta(epsilon, certified=certified) for term in self.terms) + self.outside, 1.0)

    def epsilon(self, target_delta: float, *, certified: bool = True) -> float:
        """Return an upper bound on epsilon; `low` where already that keeps the delta, inf where nothing does."""
        low, high = self.low, max(float(term.losses[-1]) for term in self.terms)
        if self.delta(low, certified=certified) <= target_delta:
            return low
        if high <= low or not self.delta(high, certified=certified) <= target_delta:  # nor where it is no number
            return math.inf
        while high - low > 1e-7 * high:
            middle = (low + high) / 2
            kept = self.delta(middle, certified=certified) <= target_delta
            low, high = (low, middle) if kept else (middle, high)
        return high


def _epsilon(events: Counts, direction: Direction, target_delta: float) -> float | None:
    if target_delta < _SMALLEST_DELTA:
        return None
    search = _Search(events, direction, target_delta)
    epsilon, exact = search.epsilon(search.whole)
    if epsilon is None or epsilon <= exact * (1 + 1e-3) or (cut := search.cut()) is None:
        return epsilon
    again, _ = search.epsilon(search.terms(cut), epsilon)
    return epsilon if again is None else min(epsilon, again)


def _delta(events: Counts, direction: Direction, epsilon: float) -> float | None:
    """Return the smaller bound of all releases as one term, and of several terms."""
    search = _Search(events, direction, _SMALLEST_DELTA)
    log_delta = search.rough(search.whole[0]).log_delta(epsilon)
    search = _Search(events, direction, math.exp(max(min(log_delta, 0.0) - 10.0, math.log(_SMALLEST_DELTA))))
    found = [search.delta(search.whole, epsilon)]
    if (cut := search.cut()) is not None:
        found.append(search.delta(search.terms(cut), epsilon))
    return min((delta for delta in found if delta is not None), default=None)


class _Search:
    """The search for epsilon in one direction."""

    def __init__(self, events: Counts, direction: Direction, target_delta: float) -> None:
        self._events, self._direction, self._target_delta = events, direction, target_delta
        self._tail = _NEGLIGIBLE * target_delta / sum(events.values())
        self.whole = (_Term(tuple(_Piece(event, count) for event, count in events.items())),)

    def rough(self, term: _Term) -> "_Rough":
        """Return the rough integrals of a term."""
        return _Rough(term, self._direction, self._tail)

    def epsilon(self, terms: Sequence[_Term], near: float | None = None) -> tuple[float | None, float]:
        """Return the smallest bound of a few rounds, and what it would be without the errors of the FFT.

        Each round moves the windows to the bound before. All rounds are valid.
        """
        roughs = [self.rough(term) for term in terms]
        log_delta, best, exact = math.log(self._target_delta), math.inf, 0.0
        windows = [rough.window(near, log_delta) for rough in roughs]
        for _ in range(_ROUNDS):
            found = self.composed(terms, roughs, windows)
            if found is None:
                return None, 0.0
            epsilon = found.epsilon(self._target_delta)
            if epsilon >= best * (1 - _GAIN):
                break
            best, exact = epsilon, found.epsilon(self._target_delta, certified=False)
            before, windows = windows, [rough.window(epsilon, log_delta) for rough in roughs]
            if epsilon > found.low and all(_close(*pair) for pair in zip(before, windows, strict=True)):
                break
        return (best, exact) if math.isfinite(best) else (None, 0.0)

    def delta(self, terms: Sequence[_Term], epsilon: float) -> float | None:
        """Return a bound on delta at an epsilon."""
        roughs = [self.rough(term) for term in terms]
        windows = [rough.window(epsilon, math.log(self._target_delta)) for rough in roughs]
        found = self.composed(terms, roughs, windows)
        return None if found is None else found.delta(epsilon)

    def composed(self, terms: Sequence[_Term], roughs: Sequence["_Rough"], windows: Sequence[Window]) -> _Sum | None:
        """Return the sum of all terms; None where one release has too many losses.

        All terms have the same grid, so that small and large losses together are all losses.
        """
        interval = _interval(roughs, windows)
        losses: dict[Event, Masses] = {}
        for event in self._events:
            each = masses(event.z, event.sampling_prob, self._direction, interval, self._tail)
            if each is None:
                return None
            losses[event] = each
        composed = []
        for term, window in zip(terms, windows, strict=True):
            parts = [(losses[one.event].between(one.low, one.high), one.count) for one in term.pieces]
            if all(len(each.log_masses) for each, _ in parts):  # otherwise the term is 0
                composed.append(compose(parts, term.log_weight, window))
        return _Sum(composed, self._more(terms, losses)) if composed else None

    def cut(self) -> float | None:
        """Return the loss above which about _LARGE losses of all releases lie; None where no loss is large."""
        if self._direction == "add":
            return None
        rough = [(*_rough_losses(event, self._direction, self._tail), count) for event, count in self._events.items()]
        low, high = 0.0, max(float(losses.max()) for losses, _, _ in rough)
        for _ in range(50):
            middle = (low + high) / 2
            above = sum(count * float(np.sum(np.exp(logs[losses >= middle]))) for losses, logs, count in rough)
            low, high = (middle, high) if above > _LARGE else (low, middle)
        return high

    def terms(self, cut: float) -> tuple[_Term, ...]:
        """Return the terms of the binomial theorem with so many large losses that more of them are negligible."""
        whole = self.whole[0].pieces
        cuttable = [piece for piece in whole if self._reaches(piece.event, cut)]
        others = tuple(piece for piece in whole if piece not in cuttable)
        found = []
        for numbers in _numbers(self._most_large(), [piece.count for piece in cuttable]):
            pieces, weight = list(others), 0.0
            for piece, number in zip(cuttable, numbers, strict=True):
                weight += math.log(math.comb(piece.count, number))
                pieces += [replace(piece, count=piece.count - number, high=cut)] if number < piece.count else []
                pieces += [replace(piece, count=number, low=cut)] if number else []
            found.append(_Term(tuple(pieces), weight))
        return tuple(found)

    def _reaches(self, event: Event, loss: float) -> bool:
        losses, _ = _rough_losses(event, self._direction, self._tail)
        return bool(losses.max() > loss)

    def _most_large(self) -> int:
        """Return the largest number of large losses that is not negligible."""
        number = 0
        while (2 * _LARGE) ** (number + 1) / math.factorial(number + 1) > _NEGLIGIBLE * self._target_delta:
            number += 1
        return number

    def _more(self, terms: Sequence[_Term], losses: dict[Event, Masses]) -> float:
        """Return a bound on the probability of more large losses than the terms have."""
        cuts = {piece.event: piece for term in terms for piece in term.pieces if math.isfinite(piece.low)}
        if not cuts:
            return 0.0
        expected = 0.0
        for event, piece in cuts.items():
            large = losses[event].between(piece.low, math.inf)
            if len(large.log_masses):
                expected += self._events[event] * math.exp(log_sum(large.log_masses) + 1e-9)
        more = self._most_large() + 1
        return expected**more / math.factorial(more)


def _numbers(total: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all tuples of numbers with a sum of at most `total`, each at most its own `most`."""
    if not most:
        yield ()
        return
    for number in range(min(total, most[0]) + 1):
        for others in _numbers(total - number, most[1:]):
            yield (number, *others)


class _Rough:
    """Integrals on few points, to choose the tilt and the window of a term."""

    def __init__(self, term: _Term, direction: Direction, tail: float) -> None:
        self._parts = []
        for piece in term.pieces:
            losses, logs = _rough_losses(piece.event, direction, tail)
            inside = (losses >= piece.low) & (losses < piece.high)
            if inside.any():
                self._parts.append((losses[inside], logs[inside], piece.count))
        self._totals = self._log_moments(_TILTS) + term.log_weight

    def _log_moments(self, tilts: Floats) -> Floats:
        """Return the logarithm of the mean of exp(tilt * loss) of all releases together, for every tilt."""
        total = np.zeros(len(tilts))
        for losses, logs, count in self._parts:
            total += count * np.array([log_sum(logs + tilt * losses) for tilt in tilts])
        return total

    def log_delta(self, epsilon: float) -> float:
        """Return about the logarithm of delta at an epsilon: a Chernoff bound."""
        return float(np.min(self._totals + _HIGHEST - _TILTS * epsilon))

    def window(self, epsilon: float | None, log_delta: float) -> Window:
        """Return a window that holds an epsilon; where None, the one that a Chernoff bound has for delta."""
        if epsilon is None:
            best = int(np.argmin((self._totals + _HIGHEST - log_delta) / _TILTS))
        else:
            best = int(np.argmin(self._totals + _HIGHEST - _TILTS * epsilon))
        tilt, total = float(_TILTS[best]), self._log_moments(_TILTS[[best]])
        above = (self._totals - log_delta - math.log(_NEGLIGIBLE)) / _TILTS
        tilted_above = (self._log_moments(tilt + _TILTS) - total - math.log(_OUTSIDE)) / _TILTS
        below = (math.log(_OUTSIDE) - self._log_moments(tilt - _TILTS) + total) / _TILTS
        high = max(float(np.min(above)), float(np.min(tilted_above)))
        low = min(float(np.max(below)), high, math.inf if epsilon is None else 0.7 * epsilon)
        return Window(tilt, float(_TILTS[np.argmin(above)]), low, max(high, epsilon or 0.0))

    def finest(self, tilt: float) -> float:
        """Return an interval that is small beside the loss of one release, with and without the tilt."""
        releases = sum(count for _, _, count in self._parts)
        variance = min(
            math.fsum(count * _variance(losses, logs + one * losses) for losses, logs, count in self._parts)
            for one in (0.0, tilt)
        )
        return math.sqrt(variance / releases) / _FINEST

    @property
    def widest(self) -> float:
        """The range of the losses of one release."""
        return max(float(losses.max() - losses.min()) for losses, _, _ in self._parts)


def _close(one: Window, other: Window) -> bool:
    """Return whether a window with another tilt is not worth the time."""
    return abs(math.log(one.tilt / other.tilt)) < _CLOSE


def _interval(roughs: Sequence[_Rough], windows: Sequence[Window]) -> float:
    """Return the interval of the grid: small beside what one release does, and large enough for time and memory."""
    spans = [max(window.high - window.low, 1e-12) for window in windows]
    finest = min(rough.finest(window.tilt) for rough, window in zip(roughs, windows, strict=True))
    widest = max(rough.widest for rough in roughs)
    return max(min(finest, min(spans) / _POINTS[0]), max(spans) / _POINTS[1], widest / _GRID_OF_ONE)


@lru_cache(maxsize=16)
def _rough_losses(event: Event, direction: Direction, tail: float) -> tuple[Floats, Floats]:
    """Return losses of one release and the logarithms of their masses, by quadrature."""
    z, q = event.z, event.sampling_prob
    low, high = reach(z, q, tail)
    begin = 0.5 if direction == "symmetric" else low
    width = (high - begin) / _PANELS
    nodes, weights = legendre(8)
    x = (begin + width * (np.arange(_PANELS)[:, None] + nodes)).ravel()
    losses = losses_at(z, q, x)
    added = -0.5 * (x / z) ** 2 + np.log(np.tile(weights, _PANELS) * (width / (z * math.sqrt(2 * math.pi))))
    if direction == "remove":
        return losses, added + losses
    if direction == "add":
        return -losses, added
    at_zero = math.log(max((1 - q) * math.erf(1 / (z * math.sqrt(8))), 1e-300))
    return np.concatenate([losses, -losses, [0.0]]), np.concatenate([added + losses, added, [at_zero]])


def _variance(losses: Floats, log_masses: Floats) -> float:
    weights = np.exp(log_masses - log_sum(log_masses))
    return float(weights @ (losses - float(weights @ losses)) ** 2)
