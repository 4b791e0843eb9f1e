"""How unequal the layers of a seed model become while it is trained: ratios of gradient norms over steps.

    python benchmarks/layer_growth.py RUN [RUN ...] --figure docs/images/layer-growth.png

RUN is the folder of a central run with `central.layer_norms_every`, such as the seed models of `sotto demo`. Several
runs are seeds of the same training: lines are their geometric means, bands their range. A ratio compares two kinds of
layers in all blocks, each by the root mean square of its norms; norms are averaged over windows of steps first.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from sottovoce.runs import Run

RATIOS = (("ln1", "wqkv"), ("ln1", "wf"), ("ln2", "w1"), ("ln2", "w2"))
WINDOW = 300  # steps


def kind_norms(norms: Mapping[str, float], kind: str) -> float:
    """Return the root mean square over blocks of the gradient norms of one kind of layers."""
    values = [norm for name, norm in norms.items() if f".{kind}." in name]
    return float(np.sqrt(np.mean(np.square(values))))


def ratios_of(run: Path) -> dict[tuple[str, str], dict[int, float]]:
    """Return every ratio by the first step of its window."""
    windows: dict[int, list[Mapping[str, float]]] = {}
    for line in Run(run).log.lines():
        if "layer_gradient_norms" in line:
            windows.setdefault((line["step"] - 1) // WINDOW * WINDOW, []).append(line["layer_gradient_norms"])
    means = {
        start: {kind: np.mean([kind_norms(norms, kind) for norms in found]) for pair in RATIOS for kind in pair}
        for start, found in sorted(windows.items())
    }
    return {pair: {start: float(norms[pair[0]] / norms[pair[1]]) for start, norms in means.items()} for pair in RATIOS}


def draw(runs: Sequence[dict[tuple[str, str], dict[int, float]]], figure: Path) -> None:
    """Draw all ratios over steps, on a logarithmic scale."""
    plot, axes = plt.subplots(figsize=(8, 4.2), constrained_layout=True)
    for above, below in RATIOS:
        starts = sorted(runs[0][above, below])
        values = np.log([[run[above, below][start] for start in starts] for run in runs])
        places = np.array(starts) + WINDOW / 2
        axes.plot(places, np.exp(values.mean(axis=0)), marker="o", markersize=3, label=f"{above} / {below}")
        axes.fill_between(places, np.exp(values.min(axis=0)), np.exp(values.max(axis=0)), alpha=0.2)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(yscale="log", xlabel="step of the seed model's training", ylabel="ratio of gradient norms")
    axes.legend(frameon=False, ncols=2)
    plot.savefig(figure, dpi=130)


def main() -> None:
    """Print the ratios, and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    runs = [ratios_of(run) for run in arguments.runs]
    print("| steps | " + " | ".join(f"{above} / {below}" for above, below in RATIOS) + " |")
    print("|---" * (len(RATIOS) + 1) + "|")
    for start in sorted(runs[0][RATIOS[0]]):
        means = [np.exp(np.mean([np.log(run[pair][start]) for run in runs])) for pair in RATIOS]
        print(f"| {start + 1} to {start + WINDOW} | " + " | ".join(f"{mean:.2g}" for mean in means) + " |")
    if arguments.figure is not None:
        draw(runs, arguments.figure)


if __name__ == "__main__":
    main()
