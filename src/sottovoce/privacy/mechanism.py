"""The mechanism of a run: the one object that derives clip bounds, divisor, noise, z and what releases cost.

Training takes all of these from here, so they cannot disagree. A ledger's header repeats them, and verification
(`runs/verification.py`) computes z and q again from the header alone, on purpose.

With K users, expected cohort size S and sampling probability q = S/K, one release is

    Delta = (1 / divisor) * sum over the cohort of w_k * clip(Delta_k)  +  noise of std sigma_dp * C

- Weights w_k are 1, or at most a public `weight_bound`. The divisor is q * W with a public total W (K for w = 1).
  Adding or removing one user moves the sum by at most weight_bound * C, so z = sigma_dp * q * W / weight_bound:
  sigma_dp * S for w = 1.
- With q_min the divisor is max(q_min * W, the cohort's weight) (McMahan et al. 2018): one user moves the average by at
  most 2 * weight_bound * C / (q_min * W). The cohort's weight must not show in the release. So the sum is first shrunk
  and rounded to integers, then gets its noise, and is divided by the public q_min * W.
- With cohorts of fixed size one user is replaced by another, which moves the sum by up to twice as much.

Sums are exact: they are integers, multiples of `units` (see `clipping.py`), and so is the noise. With adaptive
clipping they also hold a count for every bound, and the bounds differ from step to step: `adaptive.py` says what is
released, and why z does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from sottovoce.data.cohort import UserGroups, draw_cohort, poisson_cohort, truncated_cohort
from sottovoce.errors import ConfigError, PrivacyError, expectation, with_full_stop
from sottovoce.memory import parts
from sottovoce.model.partition import WHOLE, Partition, make_partition
from sottovoce.model.roles import role_by_name
from sottovoce.privacy.accounting import Adjacency, Spent
from sottovoce.privacy.adaptive import CountNoise, JointGrid, first_bounds
from sottovoce.privacy.noise import AnyNoise, Gaussian, IndependentNoise, NoiseState
from sottovoce.privacy.privacy_options import Participation, Privacy, Sampling, SourceName
from sottovoce.privacy.target_delta import require_small_delta
from sottovoce.privacy.truncation import cut_probability
from sottovoce.randomness import Randomness, SecureRandomness, stream

if TYPE_CHECKING:
    from torch import Tensor

FRACTION_BITS = 38  # one user adds at most 2^38 units to a coordinate
WEIGHTS = 2**20  # the largest weight, as an integer
_SUM_BITS = 62  # users and noise together stay below 2^62 units
_RESOLUTION_WITHOUT_CLIPPING = 2.0**-40
_COUNTS = "counts"  # the layer of counts in a sum
_POWERS = {"uniform": 0.0, "root": 0.5, "dim": 1.0, "weighted": 1.0}  # C_h^2 is in proportion to d_h to this power
_NOISE_TAIL = 16  # no float64 draw lies further out than this many standard deviations


@dataclass(frozen=True)
class Mechanism:
    """The mechanism of one release, from the users' deltas to the noised average."""

    privacy: Privacy
    participation: Participation
    partition: Partition
    source: SourceName = "seeded"
    bounds: tuple[float, ...] | None = None  # C_h of this step, where they adapt; None: those of the first step

    def __post_init__(self) -> None:
        """Refuse cohorts that the accounting of the noise does not assume."""
        noise, cyclic = self.privacy.noise, self.participation.sampling == "cyclic"
        if noise.separation > 1 and not cyclic:
            raise PrivacyError(
                f"privacy.noise.name={noise.name} needs users who take part in every {noise.separation}th step at most "
                f"(participation.sampling=cyclic), not {self.participation.sampling} cohorts."
            )
        if cyclic and isinstance(noise, IndependentNoise):
            raise PrivacyError(
                f"participation.sampling=cyclic has no use with independent noise (privacy.noise.name={noise.name}): "
                "it would cost more. Use poisson cohorts, or privacy.noise.name=correlated."
            )

    @cached_property
    def population(self) -> int:
        """K."""
        if self.participation.population is None:
            raise PrivacyError(
                "participation.population is required: K is a public number, which you state. Give it, and the "
                "cohort size below it, with --set participation.population=... --set participation.cohort_size=..."
            )
        return self.participation.population

    @cached_property
    def cohort_size(self) -> float:
        """S, the expected number of users in a step."""
        everyone = self.participation.sampling == "everyone"
        return float(self.population if everyone else self.participation.cohort_size)

    @cached_property
    def sampling_prob(self) -> float:
        """q = S / K."""
        return self.cohort_size / self.population

    @cached_property
    def weight_total(self) -> float:
        """W, the public total of all users' weights."""
        return self.participation.weight_total or float(self.population)

    def groups(self, users: Iterable[str], seed: int) -> UserGroups | None:
        """Return the groups of users that have their turn one after another; None where all may always take part."""
        if self.participation.sampling != "cyclic":
            return None
        return UserGroups.of(users, self.privacy.noise.separation, seed)

    def draw_cohort(
        self, users: int, rng: Randomness, *, t: int = 0, groups: UserGroups | None = None
    ) -> npt.NDArray[np.int64]:
        """Return who takes part in step t, among users 0 to users - 1 and their groups, if there are any.

        Raise PrivacyError where the accounting assumes something else.
        """
        if self.participation.sampling == "cyclic":
            if groups is None or groups.groups != self.privacy.noise.separation:
                raise PrivacyError(f"Cyclic cohorts need users in {self.privacy.noise.separation} groups.")
            eligible = groups.eligible(t)
            return eligible[
                poisson_cohort(len(eligible), self.privacy.noise.participation_prob(self.sampling_prob), rng)
            ]
        if self.participation.sampling == "fixed" and users < self.population:
            raise PrivacyError(  # without their number, which is private
                f"The store has fewer users than participation.population={self.population}, so cohorts of "
                f"{self.cohort_size:g} are a larger share than the {self.sampling_prob:g} that is accounted for. State "
                "a smaller public number that the store is sure to reach, or use Poisson cohorts."
            )
        cap = self.participation.cap
        if cap is not None and users > self.population:
            raise PrivacyError(
                f"The store has more users than participation.population={self.population}, so cohorts are cut to "
                f"participation.cap={cap} more often than is accounted for. State a public number that the store is "
                "sure not to exceed, or leave out the cap."
            )
        cohort = draw_cohort(self.participation.sampling, users, self.cohort_size, self.sampling_prob, rng)
        return cohort if cap is None else truncated_cohort(cohort, cap, rng)

    @cached_property
    def divisor(self) -> float:
        """The public number that the sum is divided by. It never depends on who took part."""
        share = self.sampling_prob if self.participation.q_min is None else self.participation.q_min
        return share * self.weight_total

    def users_divisor(self, cohort_weight: int) -> float:
        """Return what the users' own sum is divided by in effect: with q_min at least the weight of the cohort.

        It depends on who took part, so it is private; the release is divided by `divisor`.
        """
        if self.participation.q_min is None:
            return self.divisor
        return max(self.divisor, cohort_weight * self.weight_unit)

    def shrink_(self, total: Tensor, cohort_weight: int) -> None:
        """With q_min, shrink the sum of a cohort that weighs more than the divisor, and round it to integers again."""
        weight = self.users_divisor(cohort_weight)
        if weight > self.divisor:
            total.copy_(total.double().mul_(self.divisor / weight).round_())

    def randomness(self, seed: int, name: str, *keys: int) -> Randomness:
        """Return the source of cohorts and noise: the operating system's generator, or a stream of the run's seed."""
        return SecureRandomness() if self.source == "secure" else stream(seed, name, *keys)

    @property
    def weight_unit(self) -> float:
        """Weights are whole multiples of this, so that their sums are exact."""
        return self.participation.weight_bound / WEIGHTS

    def average(self, total: Tensor) -> Tensor:
        """Return the released average of an integer sum, in float32, without counts."""
        import torch  # noqa: PLC0415 - accounting stays fast

        sizes, units = list(self.partition.tensor_sizes), [self.units[layer] for layer in self.partition.tensor_layers]
        if self.grid is None:
            sizes, units = [sum(sizes)], units[:1]
        average = torch.empty(sum(sizes), dtype=torch.float32, device=total.device)
        pieces = zip(torch.split(total[: sum(sizes)], sizes), torch.split(average, sizes), units, strict=True)
        for integer_piece, released_piece, unit in pieces:
            for integers, released in parts(integer_piece, released_piece):
                released.copy_(integers.double().mul_(unit / self.divisor))
        return average

    @property
    def diagnostics(self) -> bool:
        """Whether private figures are computed, logged and shown."""
        return self.privacy.diagnosed(self.source)

    def average_norms(self, total: Tensor) -> Tensor:
        """Return the norms, by layer, of the average of an integer sum; for diagnostics."""
        norms = self.partition.norms(total[: sum(self.partition.sizes)])
        return norms.mul_(norms.new_tensor(self.units).div_(self.divisor))

    @cached_property
    def sensitivity(self) -> float:
        """How far one user can move the sum that gets the noise, in units of weight_bound * C."""
        replaced = 2.0 if self.participation.sampling == "fixed" else 1.0
        if self.participation.q_min is None:
            return replaced
        # Shrinking rounds every coordinate to a unit, and the sum, at most divisor * C, to float64.
        rounding = math.sqrt(sum(self.summed.sizes)) * 2.0**-FRACTION_BITS
        return 2 * replaced + rounding + self.divisor / self.participation.weight_bound * 2.0**-50

    @cached_property
    def z(self) -> float:
        """The noise multiplier: the noise's std over what one user can change."""
        return self.privacy.sigma_dp * self.divisor / (self.participation.weight_bound * self.sensitivity)

    @property
    def adjacency(self) -> Adjacency:
        """Which change of the population the guarantee covers."""
        return self.participation.adjacency

    def require_small_delta(self) -> None:
        """Raise where a delta of the run is not below 1/K, unless `privacy.accept` says that it may be."""
        if self.privacy.void is None:
            budget = self.privacy.budget
            for delta in (self.privacy.target_delta, budget.target_delta if budget is not None else None):
                if delta is not None:
                    require_small_delta(delta, self.population, self.privacy.accept)

    @property
    def may_restart(self) -> bool:
        """Whether a step may be released again, with another cohort, by noise that forgets the steps before."""
        return self.source == "secure" and self.privacy.noise.restarts

    def spent(self, releases: int) -> Spent:
        """Return what this many releases cost; raise where there is no guarantee."""
        if self.privacy.void is not None:
            raise PrivacyError(f"There is no epsilon: {self.privacy.void}.")
        events = self.privacy.noise.spent(self.z, self.sampling_prob, self.adjacency, releases)
        return Spent(events, releases * self.sampler_epsilon, releases * self.truncation_delta)

    @cached_property
    def truncation_delta(self) -> float:
        """What one release adds to delta where cohorts have a largest size: see `truncation.py`."""
        cap = self.participation.cap
        return 0.0 if cap is None else cut_probability(self.population, self.sampling_prob, cap)

    @cached_property
    def sampler_epsilon(self) -> float:
        """What one release costs because its noise is a discrete Gaussian instead of a rounded Gaussian.

        Within 40 standard deviations the two probabilities differ by a factor of at most e^a in every coordinate, with
        a = 70/std^2 and std in units of the sum; the mass beyond is below 1e-349. This is 2 a. `accounting.Spent` says
        how it enters (epsilon, delta).
        """
        if self.source == "seeded":  # a simulation is accounted as if its noise were ideal
            return 0.0
        return 140 * sum(self.summed.sizes) / min(self.noise_stds) ** 2

    @cached_property
    def clip_norms(self) -> tuple[float, ...] | None:
        """C_h of every layer; one number where clipping is global; None without clipping."""
        norm, sizes = self.privacy.clip_norm, self.partition.sizes
        if norm is None or self.privacy.clipping == "none":
            return None
        if self.privacy.adapts:
            return self.bounds or first_bounds(norm, self._bounded_sizes, self.privacy.adaptive)
        if self.privacy.clipping == "global":
            return (norm,)
        power = _POWERS.get(self.privacy.clipping)
        if power is None:
            raise PrivacyError(f"privacy.clipping={self.privacy.clipping} has no bounds. Add them to `clip_norms`.")
        shares = [float(size) ** power for size in sizes]
        if self.privacy.clipping == "weighted":
            for group, weight in self.privacy.layer_weights.items():
                inside = self.partition.layers_in(group)
                if not any(inside):
                    raise ConfigError(
                        f"privacy.layer_weights.{group} has no effect: no layer consists of {group!r} alone. Use "
                        "federated.partition=tensor or kind."
                    )
                shares = [share * weight if belongs else share for share, belongs in zip(shares, inside, strict=True)]
        norms = tuple(norm * math.sqrt(share / math.fsum(shares)) for share in shares)
        if math.hypot(*norms) > norm * (1 + 1e-9):
            raise PrivacyError(f"The bounds of the layers add up to {math.hypot(*norms):g}, more than C = {norm:g}.")
        return norms

    @property
    def _bounded_sizes(self) -> tuple[int, ...]:
        """The number of parameters that each bound covers."""
        return (sum(self.partition.sizes),) if self.privacy.clips_whole else self.partition.sizes

    @cached_property
    def grid(self) -> JointGrid | None:
        """What one user may add in this step where bounds adapt; None where they do not."""
        if not self.privacy.adapts or self.clip_norms is None:
            return None
        return JointGrid.of(self.clip_norms, self._bounded_sizes, self.privacy.adaptive, 2**FRACTION_BITS)

    @cached_property
    def summed(self) -> Partition:
        """What is summed and gets noise: the layers and, where bounds adapt, a last one with a count per bound."""
        whole = self.partition
        if not self.privacy.adapts:
            return whole
        return Partition(
            (*whole.layers, _COUNTS),
            (*whole.tensors, _COUNTS),
            (*whole.tensor_sizes, len(self._bounded_sizes)),
            (*whole.tensor_layers, len(whole)),
            (*whole.roles, role_by_name(_COUNTS, {})),
        )

    @property
    def adapting_norms(self) -> dict[str, float] | None:
        """The bounds of this step by layer, where they adapt: public figures."""
        if not self.privacy.adapts or self.clip_norms is None:
            return None
        layers = (WHOLE,) if self.privacy.clips_whole else self.partition.layers
        return dict(zip(layers, self.clip_norms, strict=True))

    @cached_property
    def count_noise(self) -> CountNoise | None:
        """How the noise divides into that of deltas and that of counts; None where bounds do not adapt."""
        if not self.privacy.adapts:
            return None
        return CountNoise.of(self.privacy.adaptive, len(self._bounded_sizes), self.z, self.sensitivity)

    def start_noise(self, theta: Tensor) -> NoiseState:
        """Return the state of the noise before the first release."""
        return self.privacy.noise.start(theta.new_zeros(sum(self.summed.sizes)) if self.privacy.adapts else theta)

    @cached_property
    def units(self) -> tuple[float, ...]:
        """The unit of the integer sums in every layer."""
        if self.grid is None or self.clip_norms is None:
            return (self.resolution,) * len(self.partition)
        pairs = zip(self.clip_norms, self.grid.norms, strict=True)
        units = tuple(self.participation.weight_bound * bound / norm for bound, norm in pairs)
        return units * len(self.partition) if self.privacy.clips_whole else units

    @cached_property
    def resolution(self) -> float:
        """The unit of the integer sums: weight_bound * C * 2^-38. Where bounds adapt, every layer has its own."""
        if self.clip_norms is None or self.privacy.clip_norm is None:
            return self.participation.weight_bound * _RESOLUTION_WITHOUT_CLIPPING
        return self.participation.weight_bound * self.privacy.clip_norm * 2.0**-FRACTION_BITS

    @cached_property
    def noise_stds(self) -> list[float]:
        """The standard deviation of the noise on the sum, in units of the sum, for every tensor of `summed`."""
        if self.privacy.sigma_dp == 0 or self.privacy.clip_norm is None:
            return [0.0] * len(self.summed.tensor_sizes)
        # Never too little: enlarged by more than the rounding errors of computing it.
        std = self.privacy.sigma_dp * self.privacy.clip_norm * self.divisor / self.resolution * (1 + 2.0**-48)
        analysis = self.privacy.noise_analysis
        if analysis is None:
            return [std] * len(self.summed.tensor_sizes)
        inside = self.partition.tensors_in(analysis.group)
        stds = [std * (analysis.inside if belongs else analysis.outside) for belongs in inside]
        return stds + [std] * (len(self.summed.tensor_sizes) - len(stds))

    @cached_property
    def average_noise_stds(self) -> tuple[float, ...]:
        """The standard deviation of the noise on the average, for every tensor: public, for the server optimizer."""
        tensors = zip(self.noise_stds, self.partition.tensor_layers, strict=False)  # without counts
        spread = self.privacy.noise.spread
        return tuple(std * spread * self.units[layer] / self.divisor for std, layer in tensors)

    def require_range(self, users: int) -> int:
        """Return the most units that one user may add to a coordinate without any sum wrapping around, or raise."""
        noise = _NOISE_TAIL * max(self.noise_stds) * self.privacy.noise.spread
        drawn = [self.privacy.noise.drawn_std(std) for std in self.noise_stds if std]
        exact = self.source == "secure" or not isinstance(self.privacy.noise, IndependentNoise)
        if exact and any(not 2**10 <= std <= 2**57 for std in drawn):
            raise PrivacyError("This noise cannot be drawn exactly on the grid of the sums. Use another sigma_dp.")
        room = 2**_SUM_BITS - math.ceil(noise)
        if room < max(users, 1) * 2**FRACTION_BITS and self.clip_norms is not None:
            raise PrivacyError(
                f"Cohorts of about {self.cohort_size:g} users with this noise do not fit into exact sums. Lower "
                "participation.cohort_size or privacy.sigma_dp."
            )
        return int(max(room, 0) // max(users, 1))


def cohorts_for(noise: AnyNoise | None, sampling: Sampling) -> Sampling:
    """Return how cohorts are drawn where nothing else than the default was asked for: as the noise needs it."""
    return "cyclic" if sampling == "poisson" and noise is not None and noise.separation > 1 else sampling


def plain_mechanism(
    sigma_dp: float,
    cohort_size: float,
    population: int,
    sampling: Sampling = "poisson",
    *,
    noise: AnyNoise | None = None,
    source: SourceName = "seeded",
    parameters: int = 1,
    cap: int | None = None,
    all_or_nothing: bool = False,
) -> Mechanism:
    """Return the mechanism of users who all count alike, for accounting without a model.

    The number of parameters matters to secure noise alone: `sampler_epsilon` grows with it.
    """
    if not sigma_dp > 0:
        raise PrivacyError(f"Expected sigma_dp={sigma_dp:g} > 0: without noise there is no epsilon.")
    if sampling == "everyone" and cohort_size != population:
        raise ConfigError(f"Expected cohort_size={cohort_size:g} == population={population} where everyone takes part.")
    try:
        participation = Participation(
            population=population,
            cohort_size=cohort_size,
            sampling=sampling,
            cap=cap,
            all_or_nothing=all_or_nothing,
        )
        privacy = Privacy(clip_norm=1.0, clipping="global", sigma_dp=sigma_dp, noise=noise or Gaussian())
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{name}={first['input']!r}" for name in first["loc"][-1:])
        where = key or f"cohort_size={cohort_size:g} of population={population}"
        raise ConfigError(with_full_stop(f"{where} is not valid: {expectation(first['msg'])}")) from None
    return Mechanism(privacy, participation, make_partition(["theta"], [parameters], "tensor"), source)
