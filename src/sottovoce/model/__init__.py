"""The recogniser: encoders, one flat parameter vector, the file of a model. Names are loaded on first use."""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.model.encoder import Choices, Encoder
    from sottovoce.model.encoder_options import EncoderOptions
    from sottovoce.model.flat import FlatModel
    from sottovoce.model.hardware import Hardware
    from sottovoce.model.model_file import model_path
    from sottovoce.model.model_options import AnyEncoder, ConformerOptions, TransformerOptions
    from sottovoce.model.partition import Partition, make_partition
    from sottovoce.model.recogniser import Recogniser, load_recogniser
    from sottovoce.model.roles import TensorRole, Trainable

__all__ = [
    "AnyEncoder",
    "Choices",
    "ConformerOptions",
    "Encoder",
    "EncoderOptions",
    "FlatModel",
    "Hardware",
    "Partition",
    "Recogniser",
    "TensorRole",
    "Trainable",
    "TransformerOptions",
    "load_recogniser",
    "make_partition",
    "model_path",
]

__getattr__ = lazy_names(
    __name__,
    {
        "encoder": "Choices Encoder",
        "encoder_options": "EncoderOptions",
        "flat": "FlatModel",
        "hardware": "Hardware",
        "model_file": "model_path",
        "model_options": "AnyEncoder ConformerOptions TransformerOptions",
        "partition": "Partition make_partition",
        "recogniser": "Recogniser load_recogniser",
        "roles": "TensorRole Trainable",
    },
)
