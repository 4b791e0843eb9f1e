"""The kinds of encoders that a configuration can choose by `model.kind`, apart from torch.

The built-in kinds are imported here. The union is open: a subclass of `EncoderOptions` in any module that is imported
belongs to it.
"""

from typing import Annotated, Any

from pydantic import TypeAdapter

from sottovoce.model.conformer_options import ConformerOptions
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.open_union import OpenUnion

__all__ = [
    "DEFAULT_KIND",
    "ENCODERS",
    "AnyEncoder",
    "ConformerOptions",
    "EncoderOptions",
    "TransformerOptions",
    "described",
    "read_options",
]

DEFAULT_KIND = "transformer"
_RETIRED = ("norm_scale",)  # options of earlier versions that decided initial values alone
ENCODERS = OpenUnion(EncoderOptions, "kind", DEFAULT_KIND, label="encoder")
AnyEncoder = Annotated[EncoderOptions, ENCODERS]

_READER: TypeAdapter[EncoderOptions] = TypeAdapter(AnyEncoder)


def read_options(description: Any) -> EncoderOptions:
    """Return the options that a model file holds; raise pydantic's ValidationError where they are not valid."""
    if isinstance(description, dict):
        description = {key: value for key, value in description.items() if key not in _RETIRED}
    return _READER.validate_python(description)


def described(options: EncoderOptions) -> dict[str, Any]:
    """Return the options for a model file: the default kind and defaults of later options are left out.

    So a file says the same as one from before there were others.
    """
    document = options.model_dump(mode="json")
    later = {"kind": DEFAULT_KIND} | {key: type(options).model_fields[key].default for key in options.added}
    return {key: value for key, value in document.items() if key not in later or value != later[key]}
