"""Moving the sums between GPUs on paper: bytes and times of each way to reduce them, and what int32 would cost.

Times are line rates from data sheets plus a latency for every hop: a lower bound. D is the number of parameters.
"""

import math
from dataclasses import dataclass

from sottovoce.privacy.mechanism import FRACTION_BITS

INT64, INT32, FLOAT = 8, 4, 4  # bytes
_INT32_MOST = 2**31 - 1
HOP_SECONDS = 1e-5  # assumed latency of one hop


@dataclass(frozen=True)
class Node:
    """The links of a machine with several GPUs, in bytes a second and one direction, for each GPU."""

    name: str
    gpus: int
    inside: float  # between GPUs of the machine
    outside: float  # to other machines
    host: float  # to the memory of the machine


# NVIDIA's data sheets: A100 80GB SXM (NVLink 600 GB/s and PCIe 4.0 64 GB/s, both directions together); DGX A100 (8
# ports of InfiniBand HDR, 200 Gb/s each).
DGX_A100 = Node("DGX A100", 8, 300e9, 25e9, 32e9)


@dataclass(frozen=True)
class Transport:
    """One way to bring the sum together and the average back."""

    name: str
    bytes_sent: float  # by each process
    seconds: float


def reduce_to_leader(parameters: int, gpus: int, node: Node = DGX_A100, integer: int = INT64) -> Transport:
    """Return today's way: a chain of processes adds up the sum for the leader, and passes the average back."""
    slowest = node.inside if gpus <= node.gpus else node.outside
    moved = (integer + FLOAT) * parameters
    name = f"int{8 * integer} to the leader, average back"
    if gpus == 1:
        return Transport(name, 0.0, 0.0)
    return Transport(name, moved, moved / slowest + 2 * (gpus - 1) * HOP_SECONDS)


def scattered(parameters: int, gpus: int, node: Node = DGX_A100, integer: int = INT64) -> Transport:
    """Return reduce-scatter and all-gather in one ring over all GPUs: each GPU releases its own shard."""
    moved = (integer + FLOAT) * parameters * (gpus - 1) / gpus
    slowest = node.inside if gpus <= node.gpus else node.outside
    seconds = moved / slowest + 2 * (gpus - 1) * HOP_SECONDS
    return Transport(f"int{8 * integer} reduce-scatter, all-gather", moved, seconds)


def by_node_first(parameters: int, gpus: int, node: Node = DGX_A100, integer: int = INT64) -> Transport:
    """Return the same within each machine first; between machines every GPU moves its part of the vector only."""
    inner = min(gpus, node.gpus)
    nodes = gpus // inner
    within = (integer + FLOAT) * parameters * (inner - 1) / inner
    between = (integer + FLOAT) * parameters / inner * (nodes - 1) / nodes
    seconds = within / node.inside + between / node.outside + 2 * (inner - 1 + nodes - 1) * HOP_SECONDS
    return Transport(f"int{8 * integer} reduce-scatter within machines, then between", within + between, seconds)


@dataclass(frozen=True)
class Int32Sum:
    """What an int32 sum of a cohort allows. One user adds at most `units` to a coordinate: C is that many units."""

    cohort_size: int
    sigma_dp: float
    parameters: int

    @property
    def largest_cohort(self) -> int:
        """The cohort that must fit: six standard deviations above S, as a run requires for int64."""
        return math.ceil(self.cohort_size + 6 * math.sqrt(self.cohort_size))

    @property
    def units(self) -> int:
        """The units that one user may add to a coordinate, so that no final sum leaves int32."""
        return _INT32_MOST // self.largest_cohort

    @property
    def bits(self) -> float:
        """The same in bits; today's sums have FRACTION_BITS."""
        return math.log2(self.units)

    @property
    def bias_over_noise(self) -> float:
        """The largest error of the average, where all users are rounded the same way, over the noise's std."""
        return 1 / (self.sigma_dp * self.units)

    @property
    def error_over_noise(self) -> float:
        """The standard error of the average where signs are independent, over the noise's std."""
        return self.bias_over_noise / math.sqrt(3 * self.cohort_size)

    @property
    def unit_over_typical(self) -> float:
        """One unit over a typical coordinate, C / sqrt(D), of a delta that is clipped."""
        return math.sqrt(self.parameters) / self.units


def largest_int32_cohort(sigma_dp: float, share: float) -> float:
    """Return the cohort up to which an int32 sum is off by at most this share of the noise: share * sigma_dp * 2^31."""
    return share * sigma_dp * _INT32_MOST


TODAY_UNITS: int = 2**FRACTION_BITS
