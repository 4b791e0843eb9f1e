"""The speed of the paper's runs, fitted to the 17 rows of its table of compute, and the error of the fit.

    GPU-hours = T * GPUs * (c + E[max over GPUs of (a * local steps + b * FLOPs)]) / 3600

c is the time of a central step without local work, a the time of a local step without its arithmetic, b the time of one
FLOP; every GPU gets the same number of users. The three positive numbers are fitted by least squares on the logarithm
of the hours. Estimating a row, or a whole group of rows, from the others shows how well the fit generalises.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import least_squares

from sottovoce.config import Config, resolve
from sottovoce.data.text import TokenSet
from sottovoce.estimate.user_audio import paper_audio
from sottovoce.estimate.work import Loads, flops_per_second, loads
from sottovoce.files import read_packaged_table

PAPER_MODEL = "baseline"
_START = (5.0, 0.1, 4e-14)  # seconds per central step, per local step, per FLOP: where the fit begins


@dataclass(frozen=True, kw_only=True)
class ComputeRow:
    """One row of the paper's table of compute; `line` is its line in the paper's source."""

    line: int
    group: str
    seed: str
    data: str
    dp: bool
    batch_seconds: int
    cohort_size: int
    local_kind: str
    local_count: int
    central_steps: int
    gpus: int
    runtime_hours: float
    gpu_hours: float

    @property
    def config(self) -> Config:
        """The configuration of the row, as far as it decides the cost."""
        settings = {
            "batching": {"seconds": self.batch_seconds},
            "participation": {"cohort_size": self.cohort_size},
            "federated": {"local": {self.local_kind: self.local_count}, "central_steps": self.central_steps},
        }
        return resolve(PAPER_MODEL, settings).config


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The three numbers: seconds of one GPU, for the paper's model."""

    per_central_step: float
    per_local_step: float
    per_flop: float


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A row with its estimate: with all rows fitted, without this row, and without its whole group."""

    row: ComputeRow
    estimated: float
    left_out: float
    group_left_out: float

    @property
    def ratio(self) -> float:
        """Estimated over printed GPU-hours."""
        return self.estimated / self.row.gpu_hours

    @property
    def ratio_left_out(self) -> float:
        """The same where the row was not fitted."""
        return self.left_out / self.row.gpu_hours

    @property
    def ratio_group_left_out(self) -> float:
        """The same where no row of its group was fitted."""
        return self.group_left_out / self.row.gpu_hours


@dataclass(frozen=True)
class Calibration:
    """The fit and its error on every row."""

    fit: Fit
    rows: tuple[Checked, ...]

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the median error and the worst, as a factor, of the fit and where rows or groups were left out."""
        return {name: _errors([getattr(one, name) for one in self.rows]) for name in _RATIOS}

    @property
    def factor(self) -> float:
        """The largest error of an estimate, as a factor: the worst row where each row, or its group, was left out."""
        summary = self.summary()
        return max(summary["ratio_left_out"]["worst_factor"], summary["ratio_group_left_out"]["worst_factor"])


_RATIOS = ("ratio", "ratio_left_out", "ratio_group_left_out")


def _errors(ratios: Sequence[float]) -> dict[str, float]:
    return {
        "median_error": float(np.median(np.abs(np.array(ratios) - 1))),
        "worst_factor": math.exp(max(abs(math.log(ratio)) for ratio in ratios)),
    }


@dataclass(frozen=True, eq=False)
class _Case:
    """A row and everything else that its time depends on."""

    row: ComputeRow
    loads: Loads
    flops_per_second: float

    def hours(self, fit: Fit) -> float:
        local = self.loads.busiest(fit.per_local_step, fit.per_flop * self.flops_per_second)
        return self.row.central_steps * self.row.gpus * (fit.per_central_step + local) / 3600


def compute_rows() -> list[ComputeRow]:
    """Return the rows of the paper's table."""
    return read_packaged_table(ComputeRow, "estimate/compute.csv")


@cache
def calibrate() -> Calibration:
    """Fit the three numbers, and estimate every row with and without itself and its group."""
    cases = [_case(row) for row in compute_rows()]
    fit = _fitted(cases)
    by_group = {
        group: _fitted([case for case in cases if case.row.group != group])
        for group in dict.fromkeys(case.row.group for case in cases)
    }
    checked = [
        Checked(
            row=case.row,
            estimated=case.hours(fit),
            left_out=case.hours(_fitted([other for other in cases if other is not case])),
            group_left_out=case.hours(by_group[case.row.group]),
        )
        for case in cases
    ]
    return Calibration(fit, tuple(checked))


def _case(row: ComputeRow) -> _Case:
    config, audio = row.config, paper_audio(row.data)
    language = row.data.split("-")[1] if row.data.startswith("CV") else "en"
    tokens = len(TokenSet((language,)).tokens)
    flops = flops_per_second(config.model, tokens, audio.utterance_seconds)
    return _Case(row, loads(config, audio, row.gpus, "dealt"), sum(flops.values()))


def _fitted(cases: Sequence[_Case]) -> Fit:
    def errors(logs: Sequence[float]) -> list[float]:
        fit = _from_logs(logs)
        return [math.log(case.hours(fit) / case.row.gpu_hours) for case in cases]

    fitted = least_squares(errors, np.log(_START), max_nfev=100)
    return _from_logs(fitted.x)


def _from_logs(logs: Sequence[float]) -> Fit:
    per_central_step, per_local_step, per_flop = np.exp(logs).tolist()
    return Fit(per_central_step=per_central_step, per_local_step=per_local_step, per_flop=per_flop)
