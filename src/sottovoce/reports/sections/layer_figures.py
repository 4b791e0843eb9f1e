"""Figures with a value for every layer: norms of users' deltas and their imbalance, signal to noise, trust ratios."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator

from sottovoce.reports.drawing.charts import INK, LegendEntry, Panel, Picture, log_axis, make_picture
from sottovoce.reports.drawing.elements import (
    CaptionedFigure,
    Cell,
    CsvTable,
    CsvValue,
    Element,
    HtmlTable,
    Paragraph,
    Section,
    esc,
)
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.drawing.numbers import number
from sottovoce.reports.reading.layers import (
    FAR_BELOW,
    Imbalance,
    Place,
    Pooled,
    ReadLayers,
    central_norms,
    delta_norms,
    imbalance_of,
    mean_over_steps,
    place_of,
    signal_to_noise,
    trust_ratios,
)
from sottovoce.reports.reading.run_groups import RunGroup, all_runs, detailed, legend
from sottovoce.reports.sections.layers_over_steps import layers_over_steps_picture

Curves = Sequence[tuple[RunGroup, Mapping[str, Pooled]]]
"""The groups of a figure, each with a value for every layer."""

_ROWS_PER_PANEL = 9  # layers that fit into a panel of normal height


def norms_section(groups: Sequence[RunGroup]) -> Section:
    """Return the norms of users' deltas by block and kind of layer, and their imbalance."""
    federated = [(group, norms) for group in detailed(groups) if (norms := delta_norms(group.first))]
    central = [(group, norms) for group in detailed(groups, "central") if (norms := central_norms(group.first))]
    elements: list[Element] = []
    if federated:
        elements += [_norms_figure(federated), *_imbalance_elements(federated)]
    elif detailed(groups):
        text = "No federated run on this page logged norms per layer (privacy.diagnostics=false switches them off)."
        elements.append(Paragraph(text))
    bounds = layers_over_steps_picture("clip-bounds", "Clip bounds that adapt", detailed(groups), "clip_norms")
    if bounds is not None:
        caption = (
            "Adaptive clipping: the bound C<sub>h</sub> of every layer over the steps. It follows a quantile of users' "
            "norms, known from noised counts only, so the guarantee covers it."
        )
        elements.append(CaptionedFigure(bounds, caption))
    if central:
        alt = "Norm of the gradient in central training by block, one panel per kind of layer"
        caption = "The norm of the gradient in central training, over the steps that logged it."
        elements.append(CaptionedFigure(layer_picture("central-gradient-norms", alt, central), caption))
        alt = "Norm of the gradient along central training"
        shown = [group for group, _ in central]
        along = layers_over_steps_picture("central-gradients-over-steps", alt, shown, "layer_gradient_norms")
        if along is not None:
            caption = "The same along the training: a line for every layer, in the colour of its run."
            elements.append(CaptionedFigure(along, caption))
    return Section("norms", "Delta norms per layer", elements, [_norms_csv(groups)])


def _norms_figure(shown: Curves) -> CaptionedFigure:
    picture = layer_picture("delta-norms", "Mean norm of users' deltas by block, one panel per kind of layer", shown)
    caption = (
        "A user's delta Δ is the change that its local training makes to the model. Lines: the mean norm "
        "|Δ<sub>h</sub>| in layer h before clipping, over all users of all steps. Bands: the standard deviation. If "
        "kinds of layers differ by orders of magnitude, or the norms slope over the blocks, a single bound C for the "
        "whole model treats layers unequally."
    )
    return CaptionedFigure(picture, caption)


def _norms_csv(groups: Sequence[RunGroup]) -> CsvTable:
    rows: list[list[CsvValue]] = []
    for run in all_runs(groups):
        norms, sizes = delta_norms(run) or central_norms(run), run.layer_sizes
        imbalance = imbalance_of(norms, sizes)
        for layer, norm in norms.items():
            ratio = None if imbalance is None else imbalance.ratios[layer]
            rows.append([run.name, layer, sizes.get(layer), norm.mean, norm.std, norm.count, ratio])
    header = ["run", "layer", "parameters", "norm_mean", "norm_std", "users_and_steps", "imbalance"]
    return CsvTable("delta-norms", header, rows)


def _imbalance_elements(shown: Curves) -> list[Element]:
    known = [
        (group, imbalance)
        for group, norms in shown
        if (imbalance := imbalance_of(norms, group.first.layer_sizes)) is not None
    ]
    if not known:
        return [Paragraph("The imbalance of the layers is unknown: their sizes come from a checkpoint.")]
    caption = (
        "The imbalance of the layers. Each stroke is a layer, and the dot is their median. At 1, a layer moves in "
        "proportion to its number of parameters. All parameters get the same noise, so layers far to the left of 1 "
        "drown in it first."
    )
    meaning = (
        "If all layers are near 1, global and per-layer clipping do the same. If most parameters are in layers far "
        "below 1, a few other layers use up the bound C of global clipping, and per-layer clipping may give a better "
        "model. A few parameters far above 1, such as the scale and bias of the input, matter little."
    )
    header: list[str | Cell] = ["run", "smallest", "median", "largest", "largest / smallest"]
    header += [f"parameters below {FAR_BELOW:g}", Cell("smallest in", kind="name"), Cell("largest in", kind="name")]
    table = HtmlTable(header, [_imbalance_row(group, imbalance) for group, imbalance in known])
    return [CaptionedFigure(_imbalance_picture(known), caption), Paragraph(meaning), table]


def _imbalance_picture(known: Sequence[tuple[RunGroup, Imbalance]]) -> Picture:
    def draw(axes: Axes) -> None:
        for height, (group, imbalance) in enumerate(reversed(known)):
            ratios = list(imbalance.ratios.values())
            label = hover_label(*(f"{group.name}: {layer}" for layer in imbalance.ratios), shows="x")
            axes.plot(ratios, [height] * len(ratios), "|", color=group.colour, markersize=12, alpha=0.8, label=label)
            label = hover_label(f"{group.name}: median", shows="x")
            axes.plot([imbalance.median], [height], "o", color=group.colour, markersize=6, label=label)
        axes.axvline(1.0, color=INK, linewidth=0.8, alpha=0.6)
        log_axis(axes, axes.xaxis, [ratio for _, imbalance in known for ratio in imbalance.ratios.values()])
        axes.set_yticks([])
        axes.set_ylim(-0.7, len(known) - 0.3)
        axes.set_xlabel("(|Δₕ| / |Δ|) / √(dₕ / D)")

    alt = "How much each layer moves relative to its number of parameters"
    panel = Panel("", draw, height=0.42 + 0.12 * len(known))
    return make_picture("imbalance", alt, [panel], legend(group for group, _ in known))


def _imbalance_row(group: RunGroup, imbalance: Imbalance) -> list[str | Cell]:
    ratios, least, most = imbalance.ratios, imbalance.least, imbalance.most
    values = [number(value) for value in (least, imbalance.median, most, most / least if least else None)]
    values.append(f"{100 * imbalance.share_far_below:.0f} %")
    layers = [pick(ratios, key=lambda layer: ratios[layer]) for pick in (min, max)]
    return [esc(group.name), *values, *(Cell(f"<code>{esc(layer)}</code>", kind="name") for layer in layers)]


def scaling_section(groups: Sequence[RunGroup]) -> Section:
    """Return the signal-to-noise and trust ratios by block and kind of layer; only federated runs have them."""
    title, tables = "Signal, noise and trust ratio per layer", [_scaling_csv(groups)]
    if not detailed(groups):
        return Section("signal", title, [], tables)
    signal = _ratio_curves(groups, signal_to_noise)
    trust = _ratio_curves(groups, trust_ratios)
    elements: list[Element] = []
    if signal:
        alt = "Signal-to-noise ratio by block, mean over steps, one panel per kind of layer"
        caption = (
            "Signal-to-noise ratio: the norm of the users' average in a layer divided by the norm of the noise added "
            "to it, mean over steps. Below 1 (the line) the noise is larger than the signal."
        )
        elements.append(CaptionedFigure(layer_picture("signal-to-noise", alt, signal, line=1.0), caption))
    else:
        text = "No run on this page has a signal-to-noise ratio: that needs noise, and privacy.diagnostics=true."
        elements.append(Paragraph(text))
    if trust:
        alt = "Trust ratio by block, mean over steps, one panel per kind of layer"
        caption = (
            "Trust ratio |θ<sub>h</sub>| / |u<sub>h</sub>| of the server optimizer, mean over steps: the factor by "
            "which it scales the update of a layer. It scales signal and noise alike, so it does not change their "
            "ratio."
        )
        elements.append(CaptionedFigure(layer_picture("trust-ratios", alt, trust), caption))
    else:
        elements.append(Paragraph("No run on this page logged trust ratios."))
    return Section("signal", title, elements, tables)


def _ratio_curves(groups: Sequence[RunGroup], read: ReadLayers) -> Curves:
    return [
        (group, {layer: Pooled(mean, 0.0, 1) for layer, mean in means.items()})
        for group in detailed(groups)
        if (means := mean_over_steps(group.first, read))
    ]


def _scaling_csv(groups: Sequence[RunGroup]) -> CsvTable:
    rows: list[list[CsvValue]] = []
    for run in all_runs(groups):
        if run.kind == "federated":
            signal, trust = mean_over_steps(run, signal_to_noise), mean_over_steps(run, trust_ratios)
            rows += [[run.name, layer, signal.get(layer), trust[layer]] for layer in trust]
    return CsvTable("signal-and-trust", ["run", "layer", "signal_to_noise", "trust_ratio"], rows)


def layer_picture(name: str, alt: str, shown: Curves, *, line: float | None = None) -> Picture:
    """Draw a value of every layer: for each kind of layer a panel over blocks, and one for layers outside the blocks.

    All panels over blocks share one axis, with a mark at `line`. Kinds come in the order of the model.
    """
    layers = list(dict.fromkeys(layer for _, values in shown for layer in values))
    places = _places(shown)
    inside = [layer for layer in layers if places[layer].block is not None]
    outside = [layer for layer in layers if places[layer].block is None]
    axis = _SharedAxis.of(inside, shown, line)
    kinds = dict.fromkeys(places[layer].kind for layer in inside)
    panels = [Panel(kind, _over_blocks(kind, shown, places, axis)) for kind in kinds]
    if outside:
        draw = _by_name(outside, shown, _SharedAxis.of(outside, shown, line))
        title = "outside the blocks" if inside else "layers that span blocks, and others"
        panels.append(Panel(title, draw, max(1.0, len(outside) / _ROWS_PER_PANEL)))
    entries = legend(group for group, _ in shown)
    if any(places[layer].tensor == "bias" for layer in inside):
        entries.append(LegendEntry("biases", INK, dashed=True))
    return make_picture(name, alt, panels, entries)


def _places(shown: Curves) -> dict[str, Place]:
    """Return the place of every layer, by the partition of the first run that has it."""
    places: dict[str, Place] = {}
    for group, values in shown:
        partition = group.runs[0].partition if group.runs else None
        known = () if partition is None else partition.layers
        for layer in values.keys() - places.keys():
            places[layer] = place_of(layer, partition if layer in known else None)
    return places


@dataclass(frozen=True)
class _SharedAxis:
    """The ends of a logarithmic axis that panels share, and a line to compare values with."""

    low: float
    high: float
    line: float | None

    @classmethod
    def of(cls, layers: Sequence[str], shown: Curves, line: float | None) -> "_SharedAxis | None":
        """Return an axis for the values of these layers; None where no value is positive."""
        values = [by_layer[layer] for _, by_layer in shown for layer in layers if layer in by_layer]
        ends = [end for value in values if value.mean > 0 for end in _ends(value)]
        ends += [] if line is None else [line]
        return cls(min(ends) / 1.25, max(ends) * 1.25, line) if ends else None

    def apply(self, axes: Axes, axis: Axis) -> None:
        """Give an axis of a panel these ends and the line."""
        log_axis(axes, axis, [], (self.low, self.high))
        if self.line is not None:
            draw = axes.axvline if axis is axes.xaxis else axes.axhline
            draw(self.line, color=INK, linewidth=0.8, alpha=0.6)


def _ends(value: Pooled) -> tuple[float, float]:
    """Return mean - std and mean + std; a logarithmic axis needs a lower end above 0."""
    return max(value.mean - value.std, value.mean / 10), value.mean + value.std


def _over_blocks(
    kind: str, shown: Curves, places: Mapping[str, Place], axis: _SharedAxis | None
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for group, values in shown:
            for tensor, points in _points_by_tensor(kind, values, places).items():
                label = hover_label(f"{group.name}, {tensor}")
                _draw_curve(axes, points, group.colour, label, dashed=tensor == "bias")
        if axis is not None:
            axis.apply(axes, axes.yaxis)
        axes.set_xlabel("block")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    return draw


def _points_by_tensor(
    kind: str, values: Mapping[str, Pooled], places: Mapping[str, Place]
) -> dict[str, dict[int, Pooled]]:
    """Return the values of a kind of layer by block, separately for weights and biases."""
    points: dict[str, dict[int, Pooled]] = {}
    for layer, value in values.items():
        place = places[layer]
        if place.kind == kind and place.block is not None:
            points.setdefault(place.tensor, {})[place.block] = value
    return points


def _draw_curve(axes: Axes, points: Mapping[int, Pooled], colour: str, label: str, *, dashed: bool) -> None:
    blocks = sorted(points)
    means = [points[block].mean for block in blocks]
    axes.plot(blocks, means, color=colour, linestyle="--" if dashed else "-", marker="o", markersize=3, label=label)
    if any(points[block].std for block in blocks):
        low, high = zip(*(_ends(points[block]) for block in blocks), strict=True)
        axes.fill_between(blocks, low, high, color=colour, alpha=0.13, linewidth=0)


def _by_name(layers: Sequence[str], shown: Curves, axis: _SharedAxis | None) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for height, layer in enumerate(reversed(layers)):
            for group, values in shown:
                if layer in values:
                    label = hover_label(f"{group.name}: {layer}", shows="x")
                    axes.plot([values[layer].mean], [height], "o", color=group.colour, markersize=4, label=label)
        axes.set_yticks(range(len(layers)), list(reversed(layers)))
        if axis is not None:
            axis.apply(axes, axes.xaxis)

    return draw
