"""sotto export: a model for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sottovoce.cli.arguments import Checkpoint
from sottovoce.cli.console import note
from sottovoce.errors import DataError
from sottovoce.files import gigabytes, require_place

FormatName = Literal["onnx", "torchscript", "safetensors"]  # as in model/export.py, which loads torch; mypy compares
_NAMES: dict[FormatName, str] = {"onnx": "ONNX", "torchscript": "TorchScript", "safetensors": "weights"}
_ENDINGS: dict[FormatName, tuple[str, ...]] = {
    "onnx": (".onnx",),
    "torchscript": (".pt", ".ts"),
    "safetensors": (".safetensors",),
}


def export(
    checkpoint: Checkpoint,
    to: Annotated[FormatName, typer.Option("--to", help="The format; prefer onnx for new programs.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
) -> None:
    """Write a model for other programs: ONNX, TorchScript, or plain weights in safetensors.

    An exported network takes log-mel features, (rows, frames, 80), and gives scores of tokens. docs/export.md says how
    to compute the features and how to read the scores; examples/transcribe_onnx.py does it without torch.

    Example: sotto export runs/digits --to onnx --out digits.onnx
    """
    require_place(out, *_ENDINGS[to])
    from sottovoce.model.export import export as write
    from sottovoce.model.model_file import model_path
    from sottovoce.model.recogniser import load_recogniser
    from sottovoce.runs import documents

    if out.exists() and out.samefile(model_path(checkpoint)):
        raise DataError(f"{out} is the model itself. Choose another file.")
    if (out.parent / documents.Checkpoint.FILE).exists():
        raise DataError(f"{out} would lie in a checkpoint, which only a training writes. Choose another file.")
    recogniser = load_recogniser(checkpoint)
    recogniser.require_finite(checkpoint)
    write(recogniser, out, to)
    note(f"{out}: {_NAMES[to]} of {model_path(checkpoint)}, {gigabytes(out.stat().st_size)}.")
