"""The last section of the page: every number that the projections rest on, and what was left out."""

from content import Content
from projection import SIGMA_DP, Added, added_by_noise
from stragglers import CORPUS, FETCH_SECONDS, PACE_SPREAD, paper_pace
from transport import DGX_A100, HOP_SECONDS
from wording import duration, percent, table

from sottovoce.estimate.calibration import calibrate
from sottovoce.estimate.devices import A100


def basis(content: Content) -> str:
    """Return the numbers and their sources."""
    measured, rates, pace = content.measurements, content.rates, paper_pace()
    fetch = measured.points("exchange", "fetch")[0]
    alone, together = added_by_noise(measured, 0), added_by_noise(measured, 1)
    rows = [
        ["time of a local step", duration(pace.per_local_step), "fitted to the paper's table of compute"],
        ["time of a second of audio", duration(pace.per_audio_second), "the same fit, times FLOPs per second"],
        ["time of a central step without local work", duration(calibrate().fit.per_central_step), "the same fit"],
        ["audio per user", CORPUS, "the paper's table of speakers, taken for log-normal"],
        ["secure noise", f"{duration(rates.noise.per_unit)} of a core per coordinate", "measured here"],
        ["who draws the noise", _drawn(content), "measured here: CPU time of each of two processes"],
        ["noise hidden by training", "yes" if rates.noise_hidden else "no", _hiding(alone, together)],
        ["hash", f"{duration(rates.hash.per_unit)} per coordinate", "measured here"],
        ["spread of users around the law", percent(rates.user_spread), "measured here, on a CPU"],
        [
            "fetch from a queue",
            duration(FETCH_SECONDS),
            f"assumed; {duration(fetch.median)} measured within this machine",
        ],
        ["pace of GPUs, standard deviation", percent(PACE_SPREAD), "assumed, for one column"],
        ["NVLink, each direction", f"{DGX_A100.inside / 1e9:g} GB/s", "data sheet of the A100 80GB SXM"],
        ["network, each GPU", f"{DGX_A100.outside / 1e9:g} GB/s", "data sheet of the DGX A100: 8 ports of 200 Gb/s"],
        ["host to GPU", f"{DGX_A100.host / 1e9:g} GB/s", "data sheet of the A100: PCIe 4.0"],
        ["latency of a hop", duration(HOP_SECONDS), "assumed"],
        ["memory", f"{(A100.memory_bytes or 0) / 1e9:g} GB", "data sheet of the A100"],
        ["sigma_dp", f"{SIGMA_DP:g}", "the paper's main result"],
    ]
    minutes = sum(part.took_seconds for part in measured.parts.values()) / 60
    versions = ", ".join(sorted(measured.codes))
    return f"""## What it rests on

{table(["number", "value", "source"], rows)}

Left out: evaluation and checkpoints; failures and restarts; a queue server that is overloaded; traffic of features
from disk (10 local steps of 120 s read at most 19 MB per user); GPUs that share a network with others; rates below
the line rate. [estimate.md](estimate.md) describes the fit, its error and its assumptions.

`make bench-scaling` took {minutes:.0f} minutes (code {versions}). It keeps the measurements in `docs/scaling.json`;
with `--from` the page is drawn again without measuring."""


def _drawn(content: Content) -> str:
    return "all processes" if content.rates.noise_shared else "the leader"


def _hiding(alone: Added, together: Added) -> str:
    cpu, one, two = map(duration, (sum(alone.cpu_by_process), alone.seconds, together.seconds))
    return f"measured here: {cpu} of CPU time add {one} to a step with 1 worker, {two} with 2"
