"""Compare our optimizers with optax, step by step, and write the golden numbers of tests/test_optim.py.

    python benchmarks/crosscheck_optax.py [--write tests/golden/optax.json]

Needs jax and optax beside Sottovoce: `pip install jax optax` into an environment of its own.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

from sottovoce.model.partition import make_partition
from sottovoce.optim import AdaGrad, Adam, Lamb, Lars, Optimizer, Sgd

jax.config.update("jax_enable_x64", True)
STEPS = 50
SHAPES = {"kernel": (7, 5), "bias": (5,), "zero": (3,), "scale": (1,)}
OPTIMIZERS = {
    "lars": lambda lr: optax.lars(lr, weight_decay=0.0, trust_coefficient=0.001, eps=0.0, momentum=0.9),
    "lamb": lambda lr: optax.lamb(lr, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.0),
    "adam": optax.adam,
    "adagrad": optax.adagrad,
    "sgd": optax.sgd,
    "sgd-momentum": lambda lr: optax.sgd(lr, momentum=0.9),
}
LR = {"lars": 0.5, "lamb": 0.006, "adam": 0.001, "adagrad": 0.1, "sgd": 0.1, "sgd-momentum": 0.05}


OURS: dict[str, Optimizer] = {
    "lars": Lars(xi=0.0),
    "lamb": Lamb(),
    "adam": Adam(),
    "adagrad": AdaGrad(),
    "sgd": Sgd(),
    "sgd-momentum": Sgd(momentum=0.9),
}


def start() -> dict[str, np.ndarray]:
    """Return the parameters before the first step; `zero` is a layer of zeros, as the LayerNorm biases are."""
    rng = np.random.default_rng(0)
    return {name: np.zeros(shape) if name == "zero" else rng.standard_normal(shape) for name, shape in SHAPES.items()}


def gradient(step: int) -> dict[str, np.ndarray]:
    """Return the gradient of a step; some of its layers are zero in some steps."""
    rng = np.random.default_rng(1000 + step)
    grads = {name: rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 1) for name, shape in SHAPES.items()}
    return {name: value * 0 if (step % 7 == 3 and name == "bias") else value for name, value in grads.items()}


def run(name: str) -> list[list[float]]:
    """Return all parameters after each step, as one row."""
    optimizer = OPTIMIZERS[name](LR[name])
    params = {key: jnp.asarray(value) for key, value in start().items()}
    state = optimizer.init(params)
    rows = []
    for step in range(STEPS):
        updates, state = optimizer.update({k: jnp.asarray(v) for k, v in gradient(step).items()}, state, params)
        params = optax.apply_updates(params, updates)
        rows.append(_flat({key: np.asarray(value) for key, value in params.items()}).tolist())
    return rows


def run_ours(name: str) -> list[list[float]]:
    """Return the same from our optimizer, in double precision."""
    theta = torch.tensor(_flat(start()))
    partition = make_partition(list(SHAPES), [int(np.prod(shape)) for shape in SHAPES.values()], "tensor")
    state = OURS[name].start(theta)
    rows = []
    for step in range(STEPS):
        OURS[name].step(theta, torch.tensor(_flat(gradient(step))), state, LR[name], partition)
        rows.append(theta.tolist())
    return rows


def _flat(tree: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([tree[key].ravel() for key in SHAPES])


def main() -> None:
    """Run every optimizer; print the largest difference, and write the golden numbers if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="write the golden numbers into this file")
    options = parser.parse_args()
    golden = {"optax": optax.__version__, "lr": LR, "steps": {}}
    for name in OPTIMIZERS:
        rows = run(name)
        golden["steps"][name] = {str(step): rows[step] for step in (0, 1, 9, 49)}
        difference = np.abs(np.array(rows) - np.array(run_ours(name))).max()
        print(f"{name:14} largest difference over {STEPS} steps: {difference:.1e}")
    if options.write:
        options.write.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
