"""The files of a run, each with its side of the boundary: published, covered by the guarantee, or private.

This is the one list. The privacy statement names the private files from it, a run keeps them for their owner only, and
`sotto privacy publish` exports nothing but what is marked as published here. A file that is not listed is private.

    published   exported by `sotto privacy publish`
    covered     a function of the releases and of public numbers, but not exported: nobody needs it
    private     computed from people's data without noise, or names of people, or places of their data
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Side = Literal["published", "covered", "private"]

MODEL_FILE = "model.safetensors"
METRICS_FILE = "metrics.jsonl"
PRIVATE_METRICS_FILE = "private.jsonl"

# The keys of a line of metrics that are functions of the releases and of public numbers. Every other key is private.
PUBLIC_METRICS = ("step", "guarantee", "central_lr", "epsilon", "server_norm", "trust_ratios", "clip_norms")


@dataclass(frozen=True)
class RunFile:
    """A file of a run, or a folder with everything in it."""

    pattern: str  # below the run's folder
    side: Side
    content: str

    @property
    def name(self) -> str:
        """The file's name for people."""
        return Path(self.pattern).name


RUN_FILES = (
    RunFile("ledger.jsonl", "published", "every release"),
    RunFile(METRICS_FILE, "published", "learning rates, epsilon, norms and trust ratios of the releases"),
    RunFile(f"checkpoints/*/{MODEL_FILE}", "published", "the models; the best or the last one is exported"),
    RunFile(
        "checkpoints/*/state.safetensors",
        "covered",
        "the server optimizer, clip bounds that adapt, and adapters before they are merged",
    ),
    RunFile(PRIVATE_METRICS_FILE, "private", "diagnostics, times, error rates on dev"),
    RunFile("config.json", "private", "places of the data, and hashes of it"),
    RunFile("machines.json", "private", "the types of machine it was trained on"),
    RunFile("result.json", "private", "error rates on dev and test"),
    RunFile("evaluation.json", "private", "error rates by speaker"),
    RunFile("best_evaluation.json", "private", "the same of the best model on dev"),
    RunFile("checkpoints/*/checkpoint.json", "private", "counters, error rates on dev"),
    RunFile("checkpoints/*/noise.safetensors", "private", "what a noise mechanism remembers of its noise"),
    RunFile("train.txt", "private", "the users' names"),
    RunFile("dev.txt", "private", "the dev speakers' names"),
    RunFile("test.txt", "private", "the test speakers' names"),
    RunFile("corpus", "private", "the speech, where the run made its own store"),
    RunFile("corpus.privacy", "private", "the ledger of the population, where the run made its own store"),
    RunFile("users", "private", "the users' names, where the run was deployed"),
    RunFile("contributions.jsonl", "private", "who contributed in each step, where the run was deployed"),
    RunFile("deployment.json", "private", "the name by which clients know the run"),
    RunFile("tensorboard", "private", "diagnostics as events"),
    RunFile("report.html", "private", "figures of all of these"),
    RunFile("report_files", "private", "the same figures as files"),
    RunFile("row.json", "private", "the row of a benchmark"),
    RunFile("done.json", "private", "the end of a benchmark's run"),
)
PRIVATE_FILES = tuple(file for file in RUN_FILES if file.side == "private")


def private_paths(run: Path) -> Iterator[Path]:
    """Yield the private files and folders that a run has."""
    for file in PRIVATE_FILES:
        yield from run.glob(file.pattern)
