"""The sections of the page about moving the sums, about int32, and about the memory of a GPU."""

from content import GPUS, Content
from projection import SIGMA_DP, leader_memory, paper_size
from transport import (
    DGX_A100,
    INT32,
    TODAY_UNITS,
    Int32Sum,
    Transport,
    by_node_first,
    largest_int32_cohort,
    reduce_to_leader,
    scattered,
)
from wording import digits, duration, percent, table

from sottovoce.estimate.devices import A100
from sottovoce.files import gigabytes
from sottovoce.model.partition import make_partition
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

_PAPER_COHORT = 1024
_COHORTS = (256, _PAPER_COHORT, 4096, 16_384, 204_800)
_SIGMAS = (SIGMA_DP, 1e-5)
_SHARE = 0.1  # of the noise's standard deviation that an error may have


def traffic(content: Content) -> str:
    """Return the ways to bring the sums together."""
    size, rates = paper_size().trainable, content.rates
    ways = (reduce_to_leader, scattered, by_node_first)
    rows = [_transport_row([way(size, gpus) for gpus in GPUS]) for way in ways]
    rows.append(_transport_row([by_node_first(size, gpus, integer=INT32) for gpus in GPUS]))
    head = ["way", "sent by each process", *(f"{gpus:,} GPUs" for gpus in GPUS)]
    exchange = content.measurements.points("exchange", "sum to the leader")[-1]
    return f"""## Moving the sums

Every process sends an int64 per parameter and gets a float32 back: {gigabytes(8 * size)} and {gigabytes(4 * size)} in
a central step. All ways below are exact, because they add integers. Times are line rates of {DGX_A100.name} machines
({DGX_A100.gpus} GPUs each) and a latency per hop: lower bounds, not measurements.

{table(head, rows)}

- **All processes wait for the leader**, on top of the network. It needs {duration(rates.hash.at(size))} for the hash.
  Secure noise takes {duration(rates.noise.at(size))} of one core, divided among the processes that draw it.
- **Reduce-scatter and all-gather** move as many bytes as a chain to the leader, but leave every process with the
  finished sum of its own shard. It can draw the noise, hash and average there: the leader's work is divided by the
  number of processes. The promise changes from
  "only the leader reads the sum" to "only its owner reads a shard", and the ledger records a hash of hashes.
- **Within machines first**: between machines every GPU moves only its part of the vector, through a port of its own.
- Measured here between two processes (gloo, no network): {duration(exchange.median)} for {exchange.x / 1e6:.0f}M
  coordinates, sent straight to the leader without a mask."""


def _transport_row(ways: list[Transport]) -> list[str]:
    return [ways[0].name, gigabytes(ways[-1].bytes_sent), *(duration(way.seconds) for way in ways)]


def int32(_content: Content) -> str:
    """Return the derivation of what int32 sums cost."""
    size = paper_size().trainable
    rows = [_int32_row(cohort, size) for cohort in _COHORTS]
    head = [
        "S",
        "units per user",
        "bits",
        *(f"bias / noise, sigma_dp {sigma:g}" for sigma in _SIGMAS),
        "unit / typical",
    ]
    most = ", ".join(f"{largest_int32_cohort(sigma, _SHARE):,.0f} at sigma_dp {sigma:g}" for sigma in _SIGMAS)
    return f"""### Sums in int32

Today C is 2^38 units ({TODAY_UNITS:.2g}), so one user adds at most 2^38 to a coordinate. Let C be M units instead.
Integer addition wraps around, so partial sums may leave the range; only the final sum of a cohort of n users must
fit: n M < 2^31. With n at most S + 6 sqrt(S), M is about 2^31 / S.

Rounding toward zero takes less than one unit, C / M, from every user's coordinate. It never enlarges a norm, so the
bound on one user and the accounting stay as they are. The average loses at most C / M, if all users lose in one
direction. The noise on the average has the standard deviation sigma_dp C. So

    bias / noise  <=  1 / (sigma_dp M)  =  S / (sigma_dp 2^31)

and, where users' signs are independent, 1 / (sigma_dp M sqrt(3 S)). The last column compares a unit with C / sqrt(D), a
typical coordinate of a clipped delta: near 1, most coordinates become zero.

{table(head, rows)}

A bias of at most {percent(_SHARE)} of the noise allows cohorts up to {most}. Beyond, int32 fits the sum of one
process only: with 2^26 units, 31 users. The noise must still be drawn on today's fine grid, after the sum has been
widened to int64. On the coarse grid of S = {_PAPER_COHORT:,} the difference between the discrete Gaussian and a rounded
one (`sampler_epsilon`) would cost an epsilon of {digits(_coarse_sampler_epsilon(size))} in every release, instead of
{_sampler_epsilon(size):.1e}.

int32 halves a part of the step that is a fraction of a second. **It does not pay on a cluster.** It would halve the
upload of users in a deployment, and the memory of a process' own sum."""


def _sampler_epsilon(size: int) -> float:
    """Return the epsilon that a release costs because its noise is discrete, on today's grid."""
    privacy = Privacy(clip_norm=1.0, clipping="global", sigma_dp=SIGMA_DP)
    participation = Participation(population=100 * _PAPER_COHORT, cohort_size=_PAPER_COHORT)
    return Mechanism(privacy, participation, make_partition(["theta"], [size], "tensor"), "secure").sampler_epsilon


def _coarse_sampler_epsilon(size: int) -> float:
    """Return the same on the grid of an int32 sum: it grows with the square of the unit."""
    coarser = TODAY_UNITS / Int32Sum(_PAPER_COHORT, SIGMA_DP, size).units
    return _sampler_epsilon(size) * coarser * coarser


def _int32_row(cohort: int, size: int) -> list[str]:
    sums = [Int32Sum(cohort, sigma, size) for sigma in _SIGMAS]
    first = sums[0]
    biases = [digits(each.bias_over_noise) for each in sums]
    return [f"{cohort:,}", f"{first.units:,}", f"{first.bits:.1f}", *biases, digits(first.unit_over_typical)]


def memory(content: Content) -> str:
    """Return the memory of a GPU."""
    parts = leader_memory()
    held = [[name.replace("_", " "), gigabytes(size)] for name, size in parts.items() if name != "total"]
    total = ["**total**, activations or release", f"**{gigabytes(parts['total'])}**"]
    noisy = content.measurements.points("model", "secure noise")[-1]
    return f"""## Memory of a GPU

The leader holds the following at the paper's settings (batches of 120 s). It does not depend on the number of GPUs,
users or cohort. An {A100.name} has {gigabytes(A100.memory_bytes or 0)}.

{table(["", "bytes"], [*held, total])}

Measured on the CPU with batches of 5 s: {(noisy.megabytes or 0) / 1000:.1f} GB at {noisy.x / 1e6:.1f}M parameters,
PyTorch included. In shards, the server's state and the temporaries of the release are divided by the number of
processes."""
