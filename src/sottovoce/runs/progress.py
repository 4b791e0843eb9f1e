"""The progress of a training, which its checkpoints hold, and its log with the time since the first start."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sottovoce.privacy.chain import Mark
from sottovoce.runs.documents import Checkpoint
from sottovoce.runs.metrics_log import MetricsWriter


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training is. A checkpoint holds it."""

    step: int = 0  # how many are done
    evaluated: int = -1  # how many were done at the last evaluation
    saved: int = -1  # how many were done at the last checkpoint
    best_wer: float | None = None
    last_wer: float | None = None
    since_best: int = 0  # evaluations on dev since the lowest WER

    @classmethod
    def at(cls, checkpoint: Checkpoint) -> "TrainingProgress":
        """Return the progress that a checkpoint holds."""
        step, stale = checkpoint.step, checkpoint.since_best or 0
        return cls(step, checkpoint.evaluated, step, checkpoint.best_wer, checkpoint.last_wer, stale)

    def after_evaluation(self, wer: float | None) -> "TrainingProgress":
        """Return the progress after an evaluation; without a dev set there is no WER."""
        if wer is None:
            return replace(self, evaluated=self.step)
        better = self.best_wer is None or wer < self.best_wer
        best, stale = (wer, 0) if better else (self.best_wer, self.since_best + 1)
        return replace(self, evaluated=self.step, best_wer=best, last_wer=wer, since_best=stale)

    def checkpoint(self, optimizer_steps: int, ledger: Mark | None) -> Checkpoint:
        """Return the document that holds this progress."""
        return Checkpoint(
            step=self.step,
            optimizer_steps=optimizer_steps,
            best_wer=self.best_wer,
            last_wer=self.last_wer,
            evaluated=self.evaluated,
            since_best=self.since_best or None,
            ledger=ledger,
        )


@dataclass(frozen=True)
class TrainingLog:
    """The metrics of a run with the time since its first start, on rank 0; other processes write nothing."""

    writer: MetricsWriter | None
    began: float
    timed: bool  # add the time to every line; in federated runs it depends on private data

    @property
    def elapsed_seconds(self) -> float:
        """The seconds trained so far, those before a resumption included."""
        return time.monotonic() - self.began

    def write(self, step: int, line: Mapping[str, Any]) -> None:
        """Add a line."""
        if self.writer is not None:
            elapsed = {"elapsed_seconds": self.elapsed_seconds} if self.timed else {}
            self.writer.write({"step": step, **line, **elapsed})

    def close(self) -> None:
        """Close the metrics."""
        if self.writer is not None:
            self.writer.close()
