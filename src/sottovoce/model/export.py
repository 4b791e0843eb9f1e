"""A model for other programs: ONNX, TorchScript, or plain weights in safetensors.

ONNX and TorchScript hold the network of `plain.py`: features (rows, frames, 80) and the frames of each row go in,
scores (rows, outputs, tokens) and the outputs of each row come out; rows and frames may be any number. Features are
computed outside it: docs/export.md says how. Every form carries the same metadata, from which a program learns the
tokens and the features. Nothing else goes in: neither paths nor names of the machine that exports it, nor anything of
the training.
"""

import io
import json
import logging
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save
from torch import Tensor

from sottovoce.data.text import BLANK_ID, BOUNDARY_ID
from sottovoce.errors import ConfigError, DataError
from sottovoce.features import logmel
from sottovoce.files import gigabytes, written_whole
from sottovoce.model.plain import plain
from sottovoce.model.recogniser import Recogniser

Format = Literal["onnx", "torchscript", "safetensors"]
INPUTS, OUTPUTS = ("features", "frames"), ("scores", "outputs")
METADATA_FILE = "sottovoce.json"  # inside a TorchScript file
_MOST_ONNX_BYTES = 2_000_000_000  # of one protocol buffer
_DEBUG = ".debug_pkl"  # where TorchScript keeps the lines of source that operations come from


def export(recogniser: Recogniser, path: Path, form: Format) -> None:
    """Write a model whole, in one file.

    Raise ConfigError where a library is missing, DataError where the model cannot be expressed.
    """
    if form == "safetensors":
        content = save(_tensors(recogniser), metadata(recogniser) | {"format": "pt"})
    else:
        content = _onnx(recogniser) if form == "onnx" else _torchscript(recogniser)
    with written_whole(path) as file:
        file.write(content)


def metadata(recogniser: Recogniser) -> dict[str, str]:
    """Return what a program must know to use a model: texts by key, lists and objects as JSON."""
    return {
        "sottovoce": json.dumps(recogniser.description(), sort_keys=True),
        "tokens": json.dumps(list(recogniser.token_set.tokens)),
        "blank": str(BLANK_ID),
        "boundary": str(BOUNDARY_ID),
        "features": json.dumps(logmel.DESCRIPTION),
        "output_stride": str(recogniser.encoder.output_stride),
    }


def _tensors(recogniser: Recogniser) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in recogniser.flat.tensors().items()}


def _example() -> tuple[Tensor, Tensor]:
    """Return inputs to follow through the network. Sizes of 1 would become constants."""
    return torch.zeros(2, 40, logmel.BINS), torch.tensor([40, 31])


def _onnx(recogniser: Recogniser) -> bytes:
    try:
        import onnx  # noqa: PLC0415 - an extra
        import onnxscript  # noqa: F401, PLC0415 - torch's exporter needs it
    except ImportError:
        raise ConfigError("ONNX needs onnx and onnxscript. Install them: pip install 'sottovoce[export]'.") from None
    size = sum(4 * parameter.numel() for parameter in recogniser.encoder.parameters())
    if size > _MOST_ONNX_BYTES:
        raise DataError(f"The model has {gigabytes(size)}, more than an ONNX file can hold. Use --to safetensors.")
    with _following("ONNX"):
        program = torch.onnx.export(
            plain(recogniser.encoder),
            _example(),
            dynamo=True,
            verbose=False,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_shapes=({0: "rows", 1: "frames"}, {0: "rows"}),
        )
        assert program is not None  # noqa: S101 - only without dynamo
        model = program.model_proto
    _without_notes(model)
    for key, text in metadata(recogniser).items():
        model.metadata_props.append(onnx.StringStringEntryProto(key=key, value=text))
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _without_notes(message: Any) -> None:
    """Remove the exporter's notes from a protocol buffer and all its parts: they hold paths of this machine."""
    for field, value in message.ListFields():
        if field.name in ("metadata_props", "doc_string"):
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                _without_notes(part)


def _torchscript(recogniser: Recogniser) -> bytes:
    with _following("TorchScript"):
        network = plain(recogniser.encoder)
        traced = torch.jit.trace(network, _example(), check_trace=False)  # type: ignore[no-untyped-call]  # untyped in torch
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer, _extra_files={METADATA_FILE: json.dumps(metadata(recogniser))})
    written = io.BytesIO()
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(written, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(_DEBUG):
                target.writestr(entry, source.read(entry))
    return written.getvalue()


@contextmanager
def _following(name: str) -> Iterator[None]:
    """Follow a network without gradients, without what the exporters print; what fails is one line."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings(), open(os.devnull, "w") as nothing, redirect_stdout(nothing):  # noqa: PTH123
            warnings.simplefilter("ignore")
            yield
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DataError(
            f"This kind of encoder cannot be written as {name}: {reason.rstrip('.')}. Use --to safetensors."
        ) from None
    finally:
        logger.setLevel(level)
