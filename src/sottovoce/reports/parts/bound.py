"""The terms of the convergence bound on the page: how each quantity was estimated, and how large each term is."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from sottovoce.reports.drawing.blocks import Block, Cell, Drawn, Fold, Part, Sheet, Table, Text, Value, esc
from sottovoce.reports.drawing.charts import Panel, Picture, log_axis, make_picture
from sottovoce.reports.drawing.numbers import NONE, number
from sottovoce.reports.reading.convergence import Estimates, Term, estimate, terms
from sottovoce.reports.reading.groups import Group, detailed, group_keys

_ABOUT = (
    "Theorems 2 and 3 of the paper bound the mean squared norm of the gradient over a run by a sum of terms, divided "
    "by κ = 1 − 8 (1 − η<sub>loc</sub>T<sub>loc</sub>)² (10 instead of 8 in Theorem 3, where users are sampled); "
    "Corollary 1 keeps only the orders. Every number below is an estimate from what the run itself noted, not a bound "
    "over all parameters and data as the theorems ask for. So this is for comparing terms and runs, never a guarantee."
)


def bound(groups: Sequence[Group]) -> Part:
    """Return the terms of the bound for every run that noted what they are made of."""
    found: list[tuple[Group, Estimates]] = []
    blocks: list[Block] = [Text(_ABOUT)]
    folds: list[Block] = []
    for group in detailed(groups):
        one = estimate(group.first)
        if isinstance(one, str):
            folds.append(Text(f"<b>{esc(group.name)}</b>: no terms, because {esc(one)}.", "note"))
        else:
            found.append((group, one))
            folds.append(Fold(_summary(group, one), _told(one), open=len(groups) == 1))
    if found:
        caption = (
            "The terms of Theorem 3 as shares of their sum, on a logarithmic axis: the rightmost ones decide. Those "
            "with ξ in the denominator are so large because the theorem bounds 1/(√v + ξ) by 1/ξ; compare them with "
            "each other and between runs rather than with the rest."
        )
        blocks.append(Drawn(_picture(found), caption))
    rows: list[list[Value]] = [
        [group.name, term.name, term.theorem2, term.theorem3, term.corollary]
        for group, one in found
        for term in terms(one)
    ]
    sheets = [
        Sheet("bound-terms", ["run", "term", "theorem_2", "theorem_3", "corollary_1"], rows),
        Sheet(
            "bound-estimates", ["run", "layer", "quantity", "value"], [row for pair in found for row in _values(*pair)]
        ),
    ]
    if not folds:
        folds.append(Text("No run of this page is federated."))
    return Part("bound", "Terms of the convergence bound", [*blocks, *folds], sheets)


def _summary(group: Group, found: Estimates) -> str:
    applies = " and ".join(name for name, factor in (("Theorem 2", 8), ("Theorem 3", 10)) if found.kappa(factor) > 0)
    said = f"κ is positive for {applies}" if applies else "κ is not positive: the theorems do not apply"
    return f"<b>{esc(group.name)}</b>: {said}"


def _told(found: Estimates) -> list[Block]:
    progress, kappas = number(found.progress), {factor: found.kappa(factor) for factor in (8, 10)}
    text = (
        f"η<sub>loc</sub>T<sub>loc</sub> = {progress}, so κ = {number(kappas[8])} in Theorem 2 and "
        f"{number(kappas[10])} in Theorem 3. "
    )
    if max(kappas.values()) <= 0:
        text += (
            "Where κ is not positive the theorem says nothing about this run: the table shows only how large the terms "
            "are relative to each other. (κ is positive for products between 0.65 and 1.35.)"
        )
    return [Text(text), _conditions(found), _terms_table(found), _estimates_table(found)]


def _conditions(found: Estimates) -> Block:
    product = None if found.smoothness is None else found.central_lr * found.smoothness
    kept = NONE if product is None else ("yes" if product < 1 else "no")
    rows = [
        ["κ > 0 (Theorem 2; 3)", f"{_yes(found.kappa(8) > 0)}; {_yes(found.kappa(10) > 0)}"],
        ["η<sub>glob</sub> L &lt; 1", f"{kept} ({number(product)})"],
        ["Theorem 2: everyone takes part", f"{_yes(found.sampling_prob == 1)} (q = {number(found.sampling_prob)})"],
        ["nothing but local SGD and LAMB as printed", f"no: {', '.join(found.outside)}" if found.outside else "yes"],
    ]
    return Table(["what the theorems assume", "here"], rows, text_columns=2)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _terms_table(found: Estimates) -> Block:
    listed = terms(found)
    two, three = found.kappa(8) > 0, found.kappa(10) > 0
    sums = {name: _total(listed, name) for name in ("theorem2", "theorem3", "corollary")}
    rows: list[list[str | Cell]] = []
    for term in listed:
        shares = [_share(getattr(term, name), sums[name]) for name in sums]
        values = [number(term.theorem2) if two else "", number(term.theorem3) if three else ""]
        cells = [cell for cell, shown in zip(values, (two, three), strict=True) if shown]
        rows.append([esc(term.name), term.formula, *shares, *cells])
    header = ["term", "in Theorem 2", "Theorem 2", "Theorem 3", "Corollary 1"]
    header += [f"value in {name}" for name, shown in (("2", two), ("3", three)) if shown]
    caption = "Shares of the sum. e = η<sub>loc</sub>T<sub>loc</sub>. " + _bounds_text(found, sums)
    return Table(header, rows, caption, text_columns=2)


def _bounds_text(found: Estimates, sums: Mapping[str, float]) -> str:
    parts = [
        f"sum / κ in Theorem {theorem}: {number(sums[f'theorem{theorem}'] / found.kappa(factor))}"
        for theorem, factor in ((2, 8), (3, 10))
        if found.kappa(factor) > 0
    ]
    return f"Estimate of the bound on the mean of |∇f|²: {'; '.join(parts)}." if parts else ""


def _total(listed: Sequence[Term], name: str) -> float:
    return math.fsum(value for term in listed if (value := getattr(term, name)) is not None)


def _share(value: float | None, total: float) -> str:
    if value is None:
        return NONE
    share = value / total if total else 0.0
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{number(100 * share, 2 if share >= 1e-4 else 1)} %"


_FROM = {
    "η<sub>loc</sub>, T<sub>loc</sub>": "configured; T<sub>loc</sub> is a mean where users work by epochs",
    "η<sub>glob</sub>": "mean of the schedule over the steps taken",
    "T, H, q, ξ": "configured",
    "C, σ<sub>DP</sub>": "configured",
    "C<sub>h</sub>": "from C and the kind of clipping; one layer where it is global",
    "d<sub>h</sub>": "sizes of the layers",
    "R<sub>h</sub>": "largest trust ratio over the steps",
    "P<sub>h</sub>": "R<sub>h</sub>/ξ − 1: the theorem's own bound, not measured",
    "M<sub>h</sub>": "mean over users of |g<sub>h</sub>| at the first local step; the largest over the steps",
    "Ψ<sub>h</sub> intra + inter": "variance over users of |Δ<sub>h</sub>| in a step, mean over the steps. One visit "
    "of a user cannot tell the two apart; the bound needs their sum only",
    "σ<sub>loc</sub>²": "mean |g|² − |mean g|² over local steps, with mean g = Δ/(η<sub>loc</sub>T<sub>loc</sub>); "
    "holds their drift too",
    "σ<sub>glob</sub>²": "spread of users' clipped deltas, scaled to |Δ/(η<sub>loc</sub>T<sub>loc</sub>)|²; "
    "holds σ<sub>loc</sub>²/T<sub>loc</sub> too",
    "L": "|g<sub>last</sub> − g<sub>first</sub>| over the distance between them, mean over users; "
    "from different batches, so more rather than less",
    "f(0) − f*": "users' loss in the first step; f* is at least 0",
}


def _estimates_table(found: Estimates) -> Block:
    values = (
        f"{number(found.local_lr)}, {number(found.local_steps)}",
        number(found.central_lr),
        f"{found.steps:,}, {len(found.trust)}, {number(found.sampling_prob)}, {number(found.xi)}",
        f"{number(found.clip_norm)}, {number(found.sigma_dp)}",
        _span(found.clip_norms),
        _span(found.sizes),
        _span(found.trust),
        _span(found.scaling),
        _span(found.gradients),
        _span(found.variances),
        number(found.local_variance),
        number(found.global_variance),
        number(found.smoothness),
        number(found.first_loss),
    )
    rows = [[name, value, how] for (name, how), value in zip(_FROM.items(), values, strict=True)]
    caption = (
        "g is the gradient that a local step moves by, after local clipping. What needs a copy of a gradient (L, "
        "M<sub>h</sub>) comes from one user in four. All of it is computed from private data: no guarantee covers it."
    )
    return Table(["quantity", "estimate", "from"], rows, caption, text_columns=3)


def _span(values: Mapping[str, float] | Mapping[str, int] | None) -> str:
    return f"{number(min(values.values()))} to {number(max(values.values()))}" if values else NONE


def _picture(found: Sequence[tuple[Group, Estimates]]) -> Picture:
    listed = [(group, terms(one)) for group, one in found]
    names = [term.name for term in listed[0][1]]

    def draw(axes: Axes) -> None:
        drawn = []
        for group, ones in listed:
            total = _total(ones, "theorem3")
            points = {term.name: term.theorem3 / total for term in ones if term.theorem3 and total}
            drawn += list(points.values())
            places = [len(names) - 1 - names.index(name) for name in points]
            axes.plot(list(points.values()), places, "o", color=group.colour, markersize=6, alpha=0.85)
        axes.set_yticks(range(len(names)), list(reversed(names)))
        axes.set_ylim(-0.6, len(names) - 0.4)
        if drawn:
            log_axis(axes, axes.xaxis, drawn)
        axes.set_xlabel("share of the sum (logarithmic)")

    keys = group_keys(group for group, _ in listed)
    return make_picture(
        "bound-terms", "The terms of Theorem 3, relative to their sum", [Panel("", draw)], keys, wide=True
    )


def _values(group: Group, found: Estimates) -> list[list[Value]]:
    single: dict[str, Value] = {
        "eta_loc": found.local_lr,
        "T_loc": found.local_steps,
        "eta_glob": found.central_lr,
        "T": found.steps,
        "q": found.sampling_prob,
        "xi": found.xi,
        "C": found.clip_norm,
        "sigma_dp": found.sigma_dp,
        "sigma_loc_squared": found.local_variance,
        "sigma_glob_squared": found.global_variance,
        "L": found.smoothness,
        "first_loss": found.first_loss,
        "kappa_theorem_2": found.kappa(8),
        "kappa_theorem_3": found.kappa(10),
    }
    rows: list[list[Value]] = [[group.name, "", name, value] for name, value in single.items()]
    layers: dict[str, Mapping[str, float] | Mapping[str, int] | None] = {
        "C_h": found.clip_norms,
        "d_h": found.sizes,
        "R_h": found.trust,
        "M_h": found.gradients,
        "Psi_intra_plus_inter": found.variances,
    }
    for name, values in layers.items():
        rows += [[group.name, layer, name, value] for layer, value in (values or {}).items()]
    return rows
