"""A model of your own, trained federated with differential privacy: a GRU instead of the transformer.

The options choose the model and are saved with it. The network declares nothing but its layers: clipping, noise, the
ledger, checkpoints, evaluation and reports work as for the built-in models.
"""

from typing import Literal

from torch import nn
from torch.nn.functional import pad

import sottovoce as sv


class GruOptions(sv.EncoderOptions):
    """The options of the GRU, under `model` in a configuration."""

    kind: Literal["gru"] = "gru"
    width: int = 48

    def make(self, tokens):
        return Gru(self, tokens)


class Gru(sv.Encoder):
    """Three frames of 80 log-mel features at a time -> a GRU -> scores of tokens for CTC."""

    def __init__(self, options, tokens):
        super().__init__(options, tokens)
        self.norm = nn.LayerNorm(80 * self.output_stride)
        self.gru = nn.GRU(80 * self.output_stride, options.width, batch_first=True)
        self.output = nn.Linear(options.width, tokens)

    def forward(self, features, frames, choices=None):
        padded = pad(features, (0, 0, 0, -features.shape[1] % self.output_stride))
        inputs = self.norm(padded.unflatten(1, (-1, self.output_stride)).flatten(2))
        hidden, _ = self.gru(inputs)
        return self.output(hidden), self.output_count(frames)


if __name__ == "__main__":
    run = sv.train_federated(sv.preset("quick", {"model": GruOptions(width=64)}), "runs/gru")
    print(f"WER on test {100 * run.evaluations['test'].wer:.1f} %, epsilon {run.epsilon.tightest:.3g}")
    print(sv.load(run.path).recogniser.options)  # GruOptions(kind='gru', width=64)
