"""The seam for encoders: what a network must declare so that everything else works with it.

An encoder turns features into scores of tokens. The CTC loss, decoding, SpecAugment, training, clipping, noise,
checkpoints and estimates are outside it. A new kind of encoder is a subclass of `Encoder` plus its options:

    class GruOptions(EncoderOptions):
        kind: Literal["gru"] = "gru"
        width: int = 128

        def make(self, tokens: int) -> Encoder:
            return Gru(self, tokens)

    class Gru(Encoder):
        def __init__(self, options: GruOptions, tokens: int) -> None:
            super().__init__(options, tokens)
            self.gru = nn.GRU(80 * self.output_stride, options.width, batch_first=True)
            self.output = nn.Linear(options.width, tokens)

        def forward(self, features, frames, choices=None):
            padded = F.pad(features, (0, 0, 0, -features.shape[1] % self.output_stride))
            hidden, _ = self.gru(padded.unflatten(1, (-1, self.output_stride)).flatten(2))
            return self.output(hidden), self.output_count(frames)

Everything else has a default. An encoder must keep one promise itself: the scores of an utterance do not depend on the
other utterances of its batch, so it masks whatever lies beyond an utterance's own length.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.roles import REST, TensorRole, role_by_name
from sottovoce.randomness import Streams

# The random choices of an encoder for one micro-batch of training, by name.
Choices = Mapping[str, npt.NDArray[Any]]


class Encoder(nn.Module):
    """A network from features to scores of tokens."""

    # Groups of tensors by the names of their modules, such as {"mlp": ("w1", "w2")}.
    groups: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    # Tensors of model files that earlier versions wrote, and why they no longer fit, for the error.
    former: ClassVar[Mapping[str, str]] = {}
    # Frames per output. A store holds only utterances whose text fits its own stride (3), so a larger one is refused.
    output_stride: ClassVar[int] = 3

    def __init__(self, options: EncoderOptions, tokens: int) -> None:
        """Note the options; a subclass makes its parameters."""
        super().__init__()
        self.options, self.tokens = options, tokens
        self.training_precision: torch.dtype | None = None  # of the matrix products in training; None: float32

    def forward(self, features: Tensor, frames: Tensor, choices: Choices | None = None) -> tuple[Tensor, Tensor]:
        """Return scores (rows, outputs, tokens) and the number of outputs of each row.

        `features` is (rows, longest, bins), padded with anything; `frames` holds the length of each row. `choices` are
        those that `draw_batch` and `draw_micro` made for training; an absent one means no randomness of that kind.
        Dropout inside the network draws from torch's default generator, which is seeded for each micro-batch.
        """
        raise NotImplementedError

    def output_count(self, frames: Tensor) -> Tensor:
        """Return the number of outputs for these numbers of frames: one for every stride, rounded up."""
        return torch.div(frames + self.output_stride - 1, self.output_stride, rounding_mode="floor")

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the parameters from a generator on the CPU.

        The default keeps the values that PyTorch's modules chose when they were made; those depend on the run's seed,
        too, because an encoder is made with torch's default generator seeded from it.
        """

    def parameter_roles(self) -> dict[str, TensorRole]:
        """Return the role of every parameter tensor, in the order of the parameters.

        By default they follow from the names: see `role_by_name`.
        """
        return {name: role_by_name(name, self.groups) for name, _ in self.named_parameters()}

    def adaptable(self) -> list[str]:
        """Return the names of the linear layers that may get low-rank adapters, in the order of the parameters.

        They must be used as modules, or through `linear.project`: whoever reads their weights alone would not see the
        adapter. None by default.
        """
        return []

    def draw_batch(self, streams: Streams) -> Choices:
        """Make the random choices that all micro-batches of a batch share; none by default.

        This and `draw_micro` run ahead of time in a thread of their own, so they never touch the device.
        """
        del streams
        return {}

    def draw_micro(self, streams: Streams, place: int, rows: int) -> Choices:
        """Make the random choices of one micro-batch with this many utterances, the `place`-th of its batch.

        Every array has one value per utterance along its first axis, because a micro-batch may be computed in pieces.
        """
        del streams, place, rows
        return {}

    def flops_per_output(self, outputs: float, *, drops: bool = True) -> dict[str, float]:
        """Return the FLOPs of one output by part, forward and backward, in an utterance of this many outputs.

        A multiplication and its addition count as two. With `drops`, blocks that layer drop skips are left out, on
        average. By default every parameter counts once forward and twice backward.
        """
        del outputs, drops
        return {"parameters": 6.0 * sum(parameter.numel() for parameter in self.parameters())}

    def values_per_output(self, outputs: float) -> float:
        """Return how many numbers a forward pass keeps per output, in an utterance of this many outputs.

        By default these are the inputs and outputs of all matrices.
        """
        del outputs
        matrices = [parameter for parameter in self.parameters() if parameter.dim() > 1]
        return float(sum(matrix.shape[0] + matrix[0].numel() for matrix in matrices))

    @property
    def depth(self) -> int:
        """The number of blocks, which the fixed time of a training step is proportional to."""
        return len({role.block for role in self.parameter_roles().values() if role.kind != REST}) or 1

    @property
    def computes_padding(self) -> bool:
        """Whether padding takes time. Batches are then cut into micro-batches of similar length."""
        return True

    def units_to_compile(self) -> Iterable[nn.Module]:
        """Return the modules that `hardware.compile` compiles, each on its own: by default the whole encoder."""
        return [self]

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which training computes scores, with `training_precision` for matrix products."""
        device = next(self.parameters()).device.type
        return torch.autocast(device, self.training_precision, enabled=self.training_precision is not None)


def make_on_meta(options: EncoderOptions, tokens: int) -> Encoder:
    """Return an encoder without memory for its parameters, to ask for its sizes."""
    with torch.device("meta"):
        return options.make(tokens)


def make_initialised(options: EncoderOptions, tokens: int, seed: int) -> Encoder:
    """Return an encoder on the CPU whose parameters depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        encoder = options.make(tokens)
    with torch.no_grad():
        encoder.initialise(torch.Generator().manual_seed(seed))
    return encoder


def as_tensor(choices: Choices | None, name: str, device: torch.device) -> Tensor | None:
    """Return one choice on a device; None where it was not made."""
    return None if choices is None or name not in choices else torch.from_numpy(np.asarray(choices[name])).to(device)
