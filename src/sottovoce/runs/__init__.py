"""A run: its folder, the documents in it, and the life of a training that central and federated runs share.

    reading       Run: configuration, metrics, checkpoints, evaluations, epsilon and model of a run's folder
    documents     RunConfig, Checkpoint, Evaluation, Evaluations, BestEvaluations, Result, BenchRow, ClaimedEpsilon,
                  Done
    training      Training, TrainingContext, TrainingProgress; Stop: requests to stop; Display, NoDisplay, Status
    evaluation    `record_evaluations` evaluates a run's model and keeps the figures beside it
    ledgers       `verify` checks the ledger of a federated run

Example:
    from sottovoce.runs import Run

    run = Run("runs/quick")
    run.epsilon.tightest, run.evaluations["test"].wer, run.metrics().column("dev_wer")

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.runs.display import Display, MakeDisplay, NoDisplay, Status
    from sottovoce.runs.documents import (
        BenchRow,
        BestEvaluations,
        Checkpoint,
        ClaimedEpsilon,
        Document,
        Done,
        Evaluation,
        Evaluations,
        Result,
        RunConfig,
    )
    from sottovoce.runs.evaluations import record_evaluations
    from sottovoce.runs.folder import Run
    from sottovoce.runs.own_corpus import with_own_corpus
    from sottovoce.runs.progress import TrainingLog, TrainingProgress
    from sottovoce.runs.stop import Stop
    from sottovoce.runs.training import Training, TrainingContext
    from sottovoce.runs.verification import Verified, verify

__all__ = [
    "BenchRow",
    "BestEvaluations",
    "Checkpoint",
    "ClaimedEpsilon",
    "Display",
    "Document",
    "Done",
    "Evaluation",
    "Evaluations",
    "MakeDisplay",
    "NoDisplay",
    "Result",
    "Run",
    "RunConfig",
    "Status",
    "Stop",
    "Training",
    "TrainingContext",
    "TrainingLog",
    "TrainingProgress",
    "Verified",
    "record_evaluations",
    "verify",
    "with_own_corpus",
]

__getattr__ = lazy_names(
    __name__,
    {
        "display": "Display MakeDisplay NoDisplay Status",
        "documents": "BenchRow BestEvaluations Checkpoint ClaimedEpsilon Document Done Evaluation Evaluations Result "
        "RunConfig",
        "evaluations": "record_evaluations",
        "folder": "Run",
        "own_corpus": "with_own_corpus",
        "progress": "TrainingLog TrainingProgress",
        "stop": "Stop",
        "training": "Training TrainingContext",
        "verification": "Verified verify",
    },
)
