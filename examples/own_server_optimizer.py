"""A server optimizer of your own: FedYogi (Reddi et al. 2021), chosen by its name or given as an object.

An optimizer is a frozen set of options with two methods on flat vectors: `start` makes its state, `step` moves theta by
the released average. It never sees a user's update.
"""

from typing import Literal

import sottovoce as sv


class Yogi(sv.Optimizer):
    """Adam whose second moment changes by steps of bounded size."""

    name: Literal["yogi"] = "yogi"
    b1: float = 0.9
    b2: float = 0.99
    xi: float = 1e-3

    def start(self, theta):
        return sv.State({"m": theta.new_zeros(theta.shape), "v": theta.new_full(theta.shape, self.xi**2)})

    def step(self, theta, gradient, state, lr, partition):
        state.steps += 1
        m, v = state.vectors["m"], state.vectors["v"]
        m.mul_(self.b1).add_(gradient, alpha=1 - self.b1)
        square = gradient**2
        v.sub_((v - square).sign() * square, alpha=1 - self.b2)
        theta.sub_(m / (v.sqrt() + self.xi), alpha=lr)
        return theta.new_ones(len(partition))  # one trust ratio per layer: Yogi has none


if __name__ == "__main__":
    settings = sv.preset("quick", {"federated": {"optimizer": Yogi(b2=0.9), "schedule": {"lr": 0.01}}})
    run = sv.train_federated(settings, "runs/yogi")
    print(f"WER on test {100 * run.evaluations['test'].wer:.1f} %, epsilon {run.epsilon.tightest:.3g}")
