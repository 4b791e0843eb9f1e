"""What happens layer by layer: norms of users' deltas and their imbalance, signal against noise, trust ratios."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator

from sottovoce.model.transformer import KINDS
from sottovoce.reports.drawing.blocks import Block, Cell, Drawn, Part, Sheet, Table, Text, Value, esc
from sottovoce.reports.drawing.charts import INK, Key, Panel, Picture, log_axis, make_picture
from sottovoce.reports.drawing.numbers import number
from sottovoce.reports.reading.groups import Group, detailed, group_keys
from sottovoce.reports.reading.layers import (
    FAR_BELOW,
    Imbalance,
    Pooled,
    central_norms,
    delta_norms,
    imbalance_of,
    mean_over_steps,
    place_of,
    signal_to_noise,
    trust_ratios,
)

Values = Mapping[str, Pooled]  # of every layer
_ROWS_AT_ONCE = 9  # layers that fit a panel of normal height


def norms(groups: Sequence[Group]) -> Part:
    """Return the norms of users' deltas by block and kind, and how unevenly they are spread."""
    shown = [(group, found) for group in detailed(groups) if (found := delta_norms(group.first))]
    central = [(group, found) for group in detailed(groups, "central") if (found := central_norms(group.first))]
    blocks: list[Block] = []
    if shown:
        picture = layer_picture("delta-norms", "Mean norm of users' deltas by block, a panel per kind of layer", shown)
        caption = (
            "|Δ<sub>h</sub>| before clipping: mean, and as a band the standard deviation, over all users of all steps "
            "(pooled: variance within steps plus variance between them). Look for kinds that differ by orders of "
            "magnitude and for a slope over blocks: both mean that one bound C for everything treats layers unequally."
        )
        blocks.append(Drawn(picture, caption))
        blocks += _imbalance_blocks(shown)
    else:
        blocks.append(Text("No federated run of this page noted norms (privacy.diagnostics=false switches them off)."))
    if central:
        alt = "Norm of the gradient by block in central training, a panel per kind of layer"
        caption = "The same for gradients of central training, over the steps that noted them."
        blocks.append(Drawn(layer_picture("central-gradient-norms", alt, central), caption))
    rows: list[list[Value]] = []
    for run in (run for group in groups for run in group.runs):
        found, sizes = delta_norms(run) or central_norms(run), run.layer_sizes
        even = imbalance_of(found, sizes)
        for layer, norm in found.items():
            ratio = None if even is None else even.ratios[layer]
            rows.append([run.name, layer, sizes.get(layer), norm.mean, norm.std, norm.count, ratio])
    header = ["run", "layer", "parameters", "norm_mean", "norm_std", "users_and_steps", "imbalance"]
    return Part("norms", "Delta norms per layer", blocks, [Sheet("delta-norms", header, rows)])


def _imbalance_blocks(shown: Sequence[tuple[Group, Values]]) -> list[Block]:
    found = [
        (group, one) for group, norms in shown if (one := imbalance_of(norms, group.first.layer_sizes)) is not None
    ]
    if not found:
        return [Text("How unevenly deltas are spread is not known: it takes a checkpoint, for the sizes of layers.")]

    def draw(axes: Axes) -> None:
        for place, (group, one) in enumerate(reversed(found)):
            ratios = list(one.ratios.values())
            axes.plot(ratios, [place] * len(ratios), "|", color=group.colour, markersize=12, alpha=0.8)
            axes.plot([one.median], [place], "o", color=group.colour, markersize=6)
        axes.axvline(1.0, color=INK, linewidth=0.8, alpha=0.6)
        log_axis(axes, axes.xaxis, [ratio for _, one in found for ratio in one.ratios.values()])
        axes.set_yticks([])
        axes.set_ylim(-0.7, len(found) - 0.3)
        axes.set_xlabel("(|Δₕ| / |Δ|) / √(dₕ / D)")

    keys = group_keys(group for group, _ in found)
    height = 0.42 + 0.12 * len(found)
    alt = "How much each layer moves for its size, relative to all parameters alike"
    picture = make_picture("imbalance", alt, [Panel("", draw, height)], keys, wide=True)
    caption = (
        "The imbalance: each stroke is a layer, the dot their median; 1 means that a layer moves as its number of "
        "parameters would have it. Noise is alike in every parameter: layers far left of 1 drown in it first."
    )
    rows = [_imbalance_row(group, one) for group, one in found]
    header: list[str | Cell] = ["run", "least", "median", "most", "most / least", f"parameters below {FAR_BELOW:g}"]
    header += [Cell("least in", kind="name"), Cell("most in", kind="name")]
    meaning = (
        "Where this number is near 1 in all layers, global and per-layer clipping do the same. Where most parameters "
        "lie far below 1, global clipping to one C spends its bound on a few layers, and per-layer clipping may win; "
        "a few parameters far above 1, such as the scale and bias of the input, change little."
    )
    return [Drawn(picture, caption), Text(meaning), Table(header, rows)]


def _imbalance_row(group: Group, one: Imbalance) -> list[str | Cell]:
    least, most = (pick(one.ratios, key=lambda layer: one.ratios[layer]) for pick in (min, max))
    values = [number(value) for value in (one.least, one.median, one.most, one.most / one.least if one.least else None)]
    values.append(f"{100 * one.drowned:.0f} %")
    names = [Cell(f"<code>{esc(layer)}</code>", kind="name") for layer in (least, most)]
    return [esc(group.name), *values, *names]


def scaling(groups: Sequence[Group]) -> Part:
    """Return signal to noise and trust ratio by block and kind."""
    blocks: list[Block] = []
    rows: list[list[Value]] = []
    for run in (run for group in groups for run in group.runs if run.kind == "federated"):
        ratios, trust = mean_over_steps(run, signal_to_noise), mean_over_steps(run, trust_ratios)
        rows += [[run.name, layer, ratios.get(layer), trust[layer]] for layer in trust]
    told = (
        ("signal-to-noise", signal_to_noise, "Signal to noise by block, mean over steps, a panel per kind of layer",
         "Signal to noise: the norm of the users' average in a layer over the norm of the noise on it, mean over "
         "steps. Below 1 (the line) the noise is larger than what the users said."),
        ("trust-ratios", trust_ratios, "Trust ratio by block, mean over steps, a panel per kind of layer",
         "Trust ratio |θ<sub>h</sub>| / |u<sub>h</sub>| of the server's optimizer, mean over steps: by how much a "
         "layer's update is enlarged. It rescales signal and noise alike, so it cannot mend the ratio above."),
    )  # fmt: skip
    for name, find, alt, caption in told:
        shown = [
            (group, {layer: Pooled(mean, 0.0, 1) for layer, mean in found.items()})
            for group in detailed(groups)
            if (found := mean_over_steps(group.first, find))
        ]
        if not shown:
            blocks.append(Text(f"No run of this page has a {name.replace('-', ' ')}: it takes noise and diagnostics."))
        else:
            line = 1.0 if name == "signal-to-noise" else None
            blocks.append(Drawn(layer_picture(name, alt, shown, line), caption))
    sheet = Sheet("signal-and-trust", ["run", "layer", "signal_to_noise", "trust_ratio"], rows)
    return Part("signal", "Signal, noise and trust ratio per layer", blocks, [sheet])


def layer_picture(name: str, alt: str, shown: Sequence[tuple[Group, Values]], line: float | None = None) -> Picture:
    """Draw a value of every layer: a panel per kind over blocks, on one scale, and one for the layers outside them."""
    layers = list(dict.fromkeys(layer for _, values in shown for layer in values))
    kinds = list(dict.fromkeys(place_of(layer).kind for layer in layers if place_of(layer).block is not None))
    kinds.sort(key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS))
    outside = [layer for layer in layers if place_of(layer).block is None]
    inside = _Scale.of([layer for layer in layers if layer not in outside], shown, line)
    panels = [Panel(kind, _over_blocks(kind, shown, inside)) for kind in kinds]
    if outside:
        height = max(1.0, len(outside) / _ROWS_AT_ONCE)
        panels.append(Panel("outside the blocks", _by_name(outside, shown, _Scale.of(outside, shown, line)), height))
    keys = group_keys(group for group, _ in shown)
    if any(place_of(layer).tensor == "bias" and place_of(layer).block is not None for layer in layers):
        keys.append(Key("biases of LayerNorms", INK, dashed=True))
    return make_picture(name, alt, panels, keys)


@dataclass(frozen=True)
class _Scale:
    """What several panels share: the ends of the axis, and a line to compare with."""

    low: float
    high: float
    line: float | None

    @classmethod
    def of(cls, layers: Sequence[str], shown: Sequence[tuple[Group, Values]], line: float | None) -> "_Scale | None":
        """Return the scale of some layers; None where nothing is above 0."""
        values = [of_all[layer] for _, of_all in shown for layer in layers if layer in of_all]
        found = [end for value in values for end in _ends(value) if value.mean > 0]
        found += [] if line is None else [line]
        return cls(min(found) / 1.25, max(found) * 1.25, line) if found else None

    def apply(self, axes: Axes, axis: Axis) -> None:
        """Make an axis that of the scale."""
        log_axis(axes, axis, [], (self.low, self.high))
        if self.line is not None:
            draw = axes.axvline if axis is axes.xaxis else axes.axhline
            draw(self.line, color=INK, linewidth=0.8, alpha=0.6)


def _ends(value: Pooled) -> tuple[float, float]:
    """Return mean less and plus std; a logarithmic axis has no room below 0."""
    return max(value.mean - value.std, value.mean / 10), value.mean + value.std


def _over_blocks(kind: str, shown: Sequence[tuple[Group, Values]], scale: _Scale | None) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for group, values in shown:
            for tensor in dict.fromkeys(place_of(layer).tensor for layer in values):
                points = {
                    place.block: value
                    for layer, value in values.items()
                    if (place := place_of(layer)).kind == kind and place.tensor == tensor and place.block is not None
                }
                if points:
                    _curve(axes, points, group.colour, dashed=tensor == "bias")
        if scale is not None:
            scale.apply(axes, axes.yaxis)
        axes.set_xlabel("block")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    return draw


def _curve(axes: Axes, points: Mapping[int, Pooled], colour: str, *, dashed: bool) -> None:
    blocks = sorted(points)
    means = [points[block].mean for block in blocks]
    axes.plot(blocks, means, color=colour, linestyle="--" if dashed else "-", marker="o", markersize=3)
    if any(points[block].std for block in blocks):
        low, high = zip(*(_ends(points[block]) for block in blocks), strict=True)
        axes.fill_between(blocks, low, high, color=colour, alpha=0.13, linewidth=0)


def _by_name(
    layers: Sequence[str], shown: Sequence[tuple[Group, Values]], scale: _Scale | None
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for place, layer in enumerate(reversed(layers)):
            for group, values in shown:
                if layer in values:
                    axes.plot([values[layer].mean], [place], "o", color=group.colour, markersize=4)
        axes.set_yticks(range(len(layers)), list(reversed(layers)))
        if scale is not None:
            scale.apply(axes, axes.xaxis)

    return draw
