"""Single pictures as PNG files: the distribution of speakers, and epsilon over population and cohort size."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from sottovoce.files import written_whole

_COLOURS = mpl.color_sequences["tab10"]
_BINS = 30
_EPSILONS = (0.1, 0.3, 1, 3, 10, 30, 100, 1000, 1e4, 1e6)  # contour lines
_LEAST_RATIO = 6.0  # between the ends of an axis, so that it has a few labelled ticks


@dataclass(frozen=True)
class UserAmounts:
    """The amount of speech of each user."""

    minutes: npt.NDArray[np.float64]
    utterances: npt.NDArray[np.int64]


def speaker_distribution(populations: Mapping[str, UserAmounts], path: Path) -> None:
    """Draw the share of speakers by minutes (top) and by utterances (bottom), both on a logarithmic axis."""
    figure = _new_figure(7, 6.4)
    top, bottom = figure.subplots(2, 1)
    _histograms(top, {name: amounts.minutes for name, amounts in populations.items()}, "minutes per speaker")
    _histograms(bottom, {name: amounts.utterances for name, amounts in populations.items()}, "utterances per speaker")
    figure.legend(*top.get_legend_handles_labels(), loc="outside upper left", ncols=2, frameon=False)
    _save(figure, path)


def _new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)  # room for labels wider than expected
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with written_whole(path, private=True) as file:  # figures of users
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})


def _histograms(axes: Axes, amounts: Mapping[str, npt.NDArray[np.generic]], label: str) -> None:
    """Draw a histogram for each population; users without audio are left out, as a logarithmic axis has no 0."""
    positive = {name: np.asarray(values, dtype=np.float64)[np.asarray(values) > 0] for name, values in amounts.items()}
    edges = _bin_edges(np.concatenate(list(positive.values())))
    for index, (name, values) in enumerate(positive.items()):
        share = 100 * np.histogram(values, edges)[0] / max(len(values), 1)
        colour = _COLOURS[index % len(_COLOURS)]
        legend_label = f"{name}: {len(values):,} speakers".replace("$", r"\$")
        axes.stairs(share, edges, label=legend_label, color=colour, fill=True, alpha=0.35)
        axes.stairs(share, edges, color=colour, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_xlim(edges[0], edges[-1])
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.set_ylabel("% of speakers")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)


def _bin_edges(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    low, high = (values.min(), values.max()) if values.size else (1.0, 1.0)
    margin = max(_LEAST_RATIO / (high / low), 1.1) ** 0.5
    return np.geomspace(low / margin, high * margin, _BINS + 1)


def epsilon_contours(
    populations: npt.NDArray[np.float64],
    cohorts: npt.NDArray[np.float64],
    epsilons: npt.NDArray[np.float64],
    title: str,
    path: Path,
) -> None:
    """Draw epsilon over population and cohort size; a cross marks the middle of both, which is the planned pair."""
    figure = _new_figure(7, 5.4)
    axes = figure.subplots()
    axes.set_xscale("log")  # clabel places the labels by the scale, so it comes first
    axes.set_yscale("log")
    logs = np.ma.masked_invalid(np.log10(np.maximum(epsilons, 1e-4)))
    filled = axes.contourf(populations, cohorts, logs, levels=24, cmap="viridis_r")
    lines = axes.contour(populations, cohorts, logs, levels=np.log10(_EPSILONS), colors="white", linewidths=1)
    axes.clabel(lines, fmt=lambda level: f"{10**level:.3g}", fontsize=9)
    middle = len(populations) // 2
    axes.plot(populations[middle], cohorts[middle], "rx", markersize=10, markeredgewidth=2, label="this plan")
    axes.set_xlabel("population K")
    axes.set_ylabel("cohort size S")
    axes.set_title(title)
    axes.legend(loc="lower right")
    ticks = [level for level in np.log10(_EPSILONS) if logs.min() <= level <= logs.max()]
    figure.colorbar(filled, ax=axes, label="epsilon", ticks=ticks, format=lambda level, _: f"{10**level:.3g}")
    _save(figure, path)
