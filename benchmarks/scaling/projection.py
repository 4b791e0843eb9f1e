"""A run of the paper's model on many A100s, on paper: the time of a central step, part by part.

    compute     users' local work at the pace of the paper's runs (the estimate's fit), divided evenly
    waiting     the slowest GPU beyond that, simulated
    fixed       the time of a central step without local work in the paper's runs (the same fit)
    noise       measured here: CPU time of secure noise, divided among the processes that draw it; where it is drawn
                while users train, only the time beyond theirs
    leader      measured here: the hash of the sum for the ledger
    traffic     line rates: the sum, the average, noise that others draw, and copies between host and GPU

Nothing of it was run on a GPU.
"""

from dataclasses import dataclass
from functools import cache

from documents import Measurements
from fits import Law, law_of, phase_points, time_law, user_law
from stragglers import SORTED_QUEUE, STEPS, TODAY, Rule, mean_cost, paper_pace, simulate
from transport import DGX_A100, INT64, by_node_first, reduce_to_leader

from sottovoce.config import parse_setting, resolve
from sottovoce.estimate.calibration import PAPER_MODEL, ComputeRow, calibrate, compute_rows
from sottovoce.estimate.model_size import ModelSize, describe
from sottovoce.estimate.run_cost import memory
from sottovoce.estimate.work import local_work

CENTRAL_STEPS = 2000
SIGMA_DP = 3e-6
PAPER_GPUS, PAPER_COHORT = 32, 1024
PARTS = ("compute", "waiting", "fixed", "noise", "leader", "traffic")
_SHARED = 0.25  # of the CPU time of noise on the second of two processes, from which they share it
_HIDDEN = 0.5  # of the CPU time of noise that a step becomes longer by, below which it is drawn while users train


@dataclass(frozen=True)
class Rates:
    """The measured numbers that a projection rests on, in seconds of one core."""

    noise: Law  # by coordinates
    noise_shared: bool  # whether all processes draw it
    noise_hidden: bool  # whether it is drawn while users train
    hash: Law
    user_spread: float

    @classmethod
    def of(cls, measurements: Measurements) -> "Rates":
        """Read the numbers off the measurements."""
        alone, both = (added_by_noise(measurements, place) for place in (0, 1))
        return cls(
            noise=law_of(phase_points(measurements)["noise"]),
            noise_shared=both.cpu_by_process[1] > _SHARED * sum(both.cpu_by_process),
            noise_hidden=alone.seconds < _HIDDEN * sum(alone.cpu_by_process),
            hash=time_law(measurements.points("exchange", "hash")),
            user_spread=user_law(measurements.parts["workers"].steps).spread,
        )

    def noise_seconds(self, parameters: int, processes: int, users_seconds: float) -> float:
        """Return how long a step waits for its noise; users train for `users_seconds`."""
        drawn = self.noise.at(parameters) / processes
        return max(drawn - users_seconds, 0.0) if self.noise_hidden else drawn


@dataclass(frozen=True)
class Added:
    """The time that secure noise adds to a step."""

    seconds: float
    cpu_by_process: tuple[float, ...]


def added_by_noise(measurements: Measurements, place: int) -> Added:
    """Return the time that noise adds: place 0 has one worker, place 1 has two."""
    noisy, plain = (measurements.points("noise", name)[place] for name in ("secure noise", "without noise"))
    cpu = (after - before for after, before in zip(noisy.cpu_by_process, plain.cpu_by_process, strict=True))
    return Added(noisy.median - plain.median, tuple(cpu))


@dataclass(frozen=True)
class Projection:
    """One run: the seconds of a central step by part."""

    gpus: int
    cohort_size: int
    seconds: dict[str, float]

    @property
    def step_seconds(self) -> float:
        """The time of a central step."""
        return sum(self.seconds.values())

    @property
    def hours(self) -> float:
        """The time of a run."""
        return CENTRAL_STEPS * self.step_seconds / 3600

    @property
    def gpu_hours(self) -> float:
        """The same, of all GPUs."""
        return self.gpus * self.hours

    def share(self, part: str) -> float:
        """Return the share of a part."""
        return self.seconds[part] / self.step_seconds


@cache
def paper_size() -> ModelSize:
    """Return the size of the paper's model."""
    return describe(STEPS.config, "tensor", "en")


def as_it_is(rates: Rates, gpus: int, cohort_size: int) -> Projection:
    """Project the engine as measured: fixed shares, and a leader that noises and hashes the sum."""
    size = paper_size().trainable
    users = _users(rates, gpus, cohort_size, TODAY)
    drawing = gpus if rates.noise_shared else 1
    vector = INT64 * size
    copies = 2 * vector / DGX_A100.host  # the noise to the GPU, the sum back for its hash
    noise_parts = vector * (drawing - 1) / drawing / DGX_A100.outside  # to the leader
    seconds = {
        "noise": rates.noise_seconds(size, drawing, users["compute"] + users["waiting"]),
        "leader": rates.hash.at(size),
        "traffic": reduce_to_leader(size, gpus).seconds + copies + noise_parts,
    }
    return Projection(gpus, cohort_size, users | seconds)


def sharded(rates: Rates, gpus: int, cohort_size: int) -> Projection:
    """Project a release in shards and a common queue: every process draws, hashes and averages its shard."""
    size = paper_size().trainable
    users = _users(rates, gpus, cohort_size, SORTED_QUEUE)
    seconds = {
        "noise": rates.noise_seconds(size, gpus, users["compute"] + users["waiting"]),
        "leader": rates.hash.at(size) / gpus,
        "traffic": by_node_first(size, gpus).seconds + 2 * INT64 * size / gpus / DGX_A100.host,
    }
    return Projection(gpus, cohort_size, users | seconds)


@cache
def _users(rates: Rates, gpus: int, cohort_size: int, rule: Rule) -> dict[str, float]:
    compute = cohort_size * mean_cost(STEPS) / gpus
    summary = simulate(rule, STEPS, cohort_size, gpus, rates.user_spread)
    return {
        "compute": compute,
        "waiting": compute * (summary.over_ideal - 1),
        "fixed": calibrate().fit.per_central_step,
    }


def fixed_share_of_compute() -> float:
    """Return the share of a user's time that is the fixed time of its local steps."""
    steps, _ = local_work(STEPS.config, STEPS.audio.seconds, STEPS.audio.utterance_seconds)
    return paper_pace().per_local_step * STEPS.audio.mean(steps) / mean_cost(STEPS)


def paper_row() -> ComputeRow:
    """Return the paper's own run with DP, S = 1,024, on 32 GPUs."""
    return next(
        row
        for row in compute_rows()
        if row.dp and row.gpus == PAPER_GPUS and row.cohort_size == PAPER_COHORT and row.data == STEPS.corpus
    )


def leader_memory() -> dict[str, float]:
    """Return the bytes of the leading process with the paper's batches, part by part."""
    private = ["privacy.clip_norm=0.01", "privacy.clipping=uniform", f"privacy.sigma_dp={SIGMA_DP}"]
    config = resolve(PAPER_MODEL, *(parse_setting(text) for text in [*STEPS.settings, *private])).config
    return memory(config, paper_size())
