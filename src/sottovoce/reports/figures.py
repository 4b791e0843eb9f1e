"""Figures, as PNG files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sottovoce.files import written_whole

_COLOURS = mpl.color_sequences["tab10"]
_BINS = 30


@dataclass(frozen=True)
class UserAmounts:
    """How much each user has."""

    minutes: npt.NDArray[np.float64]
    utterances: npt.NDArray[np.int64]


def speaker_distribution(populations: Mapping[str, UserAmounts], path: Path) -> None:
    """Draw the share of speakers by minutes (top) and by utterances (bottom), both on a logarithmic axis."""
    figure = Figure(figsize=(7, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1)
    _histograms(top, {name: amounts.minutes for name, amounts in populations.items()}, "minutes per speaker")
    _histograms(bottom, {name: amounts.utterances for name, amounts in populations.items()}, "utterances per speaker")
    with written_whole(path) as file:
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})


def _histograms(axes: "mpl.axes.Axes", amounts: Mapping[str, npt.NDArray[np.generic]], label: str) -> None:
    shown = {name: np.asarray(values, dtype=np.float64)[np.asarray(values) > 0] for name, values in amounts.items()}
    everything = np.concatenate([*shown.values(), np.ones(0)])
    if everything.size == 0:
        everything = np.ones(1)
    low, high = everything.min(), everything.max()
    edges = np.geomspace(low / 1.05, high * 1.05, _BINS + 1)
    for place, (name, values) in enumerate(shown.items()):
        share = np.histogram(values, edges)[0] / max(len(values), 1)
        axes.stairs(
            100 * share, edges, label=f"{name} ({len(values):,})", color=_COLOURS[place % 10], fill=True, alpha=0.35
        )
        axes.stairs(100 * share, edges, color=_COLOURS[place % 10], linewidth=1.2)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(label)
    axes.set_ylabel("% of speakers")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
