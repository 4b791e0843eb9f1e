"""sotto export: a model for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.arguments import Checkpoint
from sottovoce.cli.console import note
from sottovoce.errors import ConfigError, DataError
from sottovoce.files import gigabytes, require_place

if TYPE_CHECKING:
    from sottovoce.model.export import Format

_FORMS: "dict[str, tuple[Format, str]]" = {
    "onnx": ("onnx", "ONNX"),
    "torchscript": ("torchscript", "TorchScript"),
    "safetensors": ("safetensors", "weights"),
}


def export(
    checkpoint: Checkpoint,
    to: Annotated[str, typer.Option("--to", help="onnx, torchscript or safetensors.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
) -> None:
    """Write a model for other programs: ONNX, TorchScript, or plain weights in safetensors.

    An exported network takes log-mel features, (rows, frames, 80), and gives scores of tokens. docs/export.md says how
    to compute the features and how to read the scores; examples/transcribe_onnx.py does it without torch.

    Example: sotto export runs/digits --to onnx --out digits.onnx
    """
    if to not in _FORMS:
        raise ConfigError(f"--to {to}: expected {', '.join(_FORMS)}.")
    require_place(out)
    from sottovoce.model.export import export as write
    from sottovoce.model.model_file import model_path
    from sottovoce.model.recogniser import load_recogniser

    if out.exists() and out.samefile(model_path(checkpoint)):
        raise DataError(f"{out} is the model itself. Choose another file.")
    form, name = _FORMS[to]
    write(load_recogniser(checkpoint), out, form)
    note(f"{out}: {name} of {model_path(checkpoint)}, {gigabytes(out.stat().st_size)}.")
