"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.limits import MOST_PROCESSES
from sottovoce.processes import available_cores

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout; messages stay on stderr.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan with size and time; write nothing.")]
Out = Annotated[Path, typer.Option("--out", help="The folder to make. It appears only when it is complete.")]
Workers = Annotated[
    int,
    typer.Option(
        "--workers", min=1, max=MOST_PROCESSES, help="Worker processes, one thread each.", show_default="all cores"
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Random seed. The same seed gives the same result on every machine.")
]
_MAX_REJECTED = typer.Option(
    "--max-rejected", min=0, max=1, help="Stop if more than this share of the utterances is unusable."
)
MaxRejected = Annotated[float, _MAX_REJECTED]
MaxRejectedOrUsual = Annotated[float | None, _MAX_REJECTED]  # where the usual share takes long to load
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="A store made by `sotto data prepare`.")]

Checkpoint = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="A model.safetensors, a checkpoint's folder or a run's folder (its best model)."
    ),
]

ALL_CORES = available_cores()
