"""Encoders that are a stack of equal blocks: front end -> blocks -> LayerNorm -> linear layer to tokens.

Where the blocks end with a LayerNorm of their own (`model.norm=post`), there is no further one. Positions are CAPE's,
which the front end adds, or relative ones, which every block learns for its own attention. In training a block may be
dropped for a whole batch (layer drop); it is then skipped and costs nothing.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sottovoce.features.logmel import BINS
from sottovoce.model.cape import MAX_SHIFT_SECONDS
from sottovoce.model.encoder import Choices, as_tensor
from sottovoce.model.encoder_options import StackOptions
from sottovoce.model.front import KERNEL, STRIDE, FrontEnd
from sottovoce.randomness import Streams

LAYER_NORM_EPS = 1e-5
RELATIVE = "wr"  # what blocks call their relative positions
# Groups that all stacks have: every bias, those of LayerNorms included, and the LayerNorm after the last block.
GROUPS_AROUND = {"biases": ("bias", "input_bias"), "final_ln": ("ln",)}
KEPT, SHIFTS = "kept_blocks", "position_shifts"  # the random choices


class Stack(FrontEnd):
    """An encoder of blocks. A block maps a packed x (places, width) and its packing to a new x.

    Matrices in a block have no biases.
    """

    options: StackOptions

    def __init__(
        self, options: StackOptions, tokens: int, blocks: Iterable[nn.Module], *, final_norm: bool = True
    ) -> None:
        """Make the parameters around the blocks."""
        super().__init__(options, tokens, options.width, options.dropout)
        self.blocks = nn.ModuleList(blocks)
        self.ln = nn.LayerNorm(options.width, eps=LAYER_NORM_EPS) if final_norm else None
        self.output = nn.Linear(options.width, tokens)

    def forward(self, features: Tensor, frames: Tensor, choices: Choices | None = None) -> tuple[Tensor, Tensor]:
        """Return scores and the number of outputs of each row."""
        shifts = as_tensor(choices, SHIFTS, features.device)
        x, packing = self.front(features, frames, shifts, cape=not self._relative)
        kept = None if choices is None else choices.get(KEPT)
        for number, block in enumerate(self.blocks):
            if kept is None or kept[number]:
                x = block(x, packing)
        return packing.unpack(self.output(x if self.ln is None else self.ln(x))), packing.outputs

    def adaptable(self) -> list[str]:
        """Return the matrices of the blocks."""
        return [f"blocks.{name}" for name, module in self.blocks.named_modules() if isinstance(module, nn.Linear)]

    def draw_batch(self, streams: Streams) -> Choices:
        """Choose the blocks that are not dropped."""
        if self.options.layer_drop == 0:
            return {}
        return {KEPT: streams.of("layer-drop").random(self.options.blocks) >= self.options.layer_drop}

    def draw_micro(self, streams: Streams, place: int, rows: int) -> Choices:
        """Shift the positions of every utterance; relative ones have nothing to shift."""
        if self._relative:
            return {}
        return {SHIFTS: streams.of("positions", place).uniform(-MAX_SHIFT_SECONDS, MAX_SHIFT_SECONDS, rows)}

    def initialise(self, generator: torch.Generator) -> None:
        """Fill the parameters as the reference does.

        Kernels of blocks U(+-sqrt(1 / fan_in)), conv and output kernels U(+-sqrt(3 / fan_in)), their biases
        U(+-1 / sqrt(fan_in)), LayerNorms 1 and 0, input scale 1 and bias 0.
        """
        norms = {id(module.weight) for module in self.modules() if isinstance(module, nn.LayerNorm)}
        zeros = {id(module.bias) for module in self.modules() if isinstance(module, nn.LayerNorm)}
        for name, parameter in self.named_parameters():
            if name == "input_scale" or id(parameter) in norms:
                parameter.fill_(1.0)
            elif name == "input_bias" or id(parameter) in zeros:
                parameter.zero_()
            else:
                bound = self._bound(name)
                parameter.uniform_(-bound, bound, generator=generator)

    def _bound(self, name: str) -> float:
        if name.startswith("blocks."):
            return math.sqrt(1 / self.get_parameter(name)[0].numel())
        fan_in = self.get_parameter(f"{name.split('.', maxsplit=1)[0]}.weight")[0].numel()
        return math.sqrt(3 / fan_in) if name.endswith("weight") else math.sqrt(1 / fan_in)

    @property
    def _relative(self) -> bool:
        return self.options.positions == "relative"

    @property
    def computes_padding(self) -> bool:
        """Packed matrices have no padding on a CPU."""
        return self.output.weight.device.type != "cpu"

    def units_to_compile(self) -> Iterable[nn.Module]:
        """Return the blocks: they share one compiled piece, and layer drop needs no further compilation."""
        return self.blocks

    def flops_per_output(self, outputs: float, *, drops: bool = True) -> dict[str, float]:
        """Return the FLOPs of the matrix products: see the module of estimates, `estimate/work.py`."""
        conv, output = self.flops_around()
        passes = self.block_passes(drops=drops)
        # A query meets every key and every value, and 2 outputs - 1 relative positions.
        met = 2 * outputs + (max(2 * outputs - 1, 0) if self._relative else 0)
        block = {"projections": 8 * self.width**2, "attention": 2 * self.width * met, **self.block_flops()}
        return {"conv": conv, **{part: passes * flops for part, flops in block.items()}, "output": output}

    def block_flops(self) -> dict[str, float]:
        """Return the FLOPs of a forward pass through a block without its attention, per output and by part."""
        raise NotImplementedError

    def block_passes(self, *, drops: bool) -> float:
        """Return the passes through blocks in a training step: one forward, and a backward pass counts as two."""
        return 3 * self.options.blocks * (1 - (self.options.layer_drop if drops else 0.0))

    def flops_around(self) -> tuple[float, float]:
        """Return the FLOPs of the convolution and of the output layer.

        The backward pass repeats a product twice, but the convolution once: its input needs no gradient.
        """
        return 2 * 2 * KERNEL * (BINS + 1) * 2 * self.width, 3 * 2 * self.width * self.tokens

    def values_around(self) -> float:
        """Return how many numbers the layers around the blocks keep per output."""
        widths = 4 if self.ln is not None else 3
        return BINS * STRIDE * 2 + widths * self.width + 3 * self.tokens


def relative_positions(options: StackOptions) -> nn.Embedding | None:
    """Return the relative positions of a block, a vector for each distance that all heads share; None with CAPE."""
    if options.positions != "relative":
        return None
    return nn.Embedding(2 * options.max_distance + 1, options.width // options.heads)
