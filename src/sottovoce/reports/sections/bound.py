"""The terms of the convergence bound: how each quantity was estimated, and how large each term is."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from sottovoce.reports.drawing.charts import Panel, Picture, log_axis, make_picture
from sottovoce.reports.drawing.elements import (
    Band,
    CaptionedFigure,
    Cell,
    Collapsible,
    CsvTable,
    CsvValue,
    Element,
    HtmlTable,
    Paragraph,
    Section,
    esc,
)
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.drawing.numbers import NONE, number
from sottovoce.reports.reading.bound_estimates import bound_estimates
from sottovoce.reports.reading.convergence import BoundEstimates, BoundTerm, bound_terms
from sottovoce.reports.reading.run_groups import RunGroup, detailed, legend

_ABOUT = (
    "Theorems 2 and 3 of the paper bound the mean squared norm of the gradient over a run by a sum of terms, divided "
    "by κ = 1 − 8 (1 − η<sub>loc</sub>T<sub>loc</sub>)². Theorem 3 is about sampled users and has 10 in place of 8. "
    "Corollary 1 keeps only the orders of magnitude. The theorems need bounds over all parameters and all data, while "
    "the numbers below are estimates from the run's own log. Use them to compare terms and runs. They guarantee "
    "nothing."
)
_FIGURE_CAPTION = (
    "The terms of Theorem 3 as shares of their sum, on a logarithmic axis: the terms at the right decide. Terms with ξ "
    "in the denominator are this large because the theorem bounds 1/(√v + ξ) by 1/ξ. Compare them with each other and "
    "between runs, not with the other terms."
)
_FACTORS = {"Theorem 2": 8, "Theorem 3": 10}  # in kappa


def bound_section(groups: Sequence[RunGroup]) -> Section:
    """Return the terms of the bound for every federated run that logged the quantities in them."""
    known: list[tuple[RunGroup, BoundEstimates]] = []
    details: list[Element] = []
    for group in detailed(groups):
        estimates = bound_estimates(group.first)
        if isinstance(estimates, str):
            details.append(Paragraph(f"<b>{esc(group.name)}</b>: no terms, because {esc(estimates)}.", "note"))
        else:
            known.append((group, estimates))
            details.append(Collapsible(_summary(group, estimates), _details(estimates)))
    figure = [CaptionedFigure(_picture(known), _FIGURE_CAPTION)] if known else []
    about = [Paragraph(_ABOUT)] if details else []
    tables = [_terms_csv(known), _estimates_csv(known)]
    return Section("bound", "Terms of the convergence bound", [*about, *figure, *details], tables)


def _summary(group: RunGroup, estimates: BoundEstimates) -> str:
    applies = " and ".join(name for name, factor in _FACTORS.items() if estimates.kappa(factor) > 0)
    text = f"κ is positive for {applies}" if applies else "κ is not positive: the theorems do not apply"
    return f"<b>{esc(group.name)}</b>: {text}"


def _details(estimates: BoundEstimates) -> list[Element]:
    text = (
        f"η<sub>loc</sub>T<sub>loc</sub> = {number(estimates.progress)}, so κ = {number(estimates.kappa(8))} in "
        f"Theorem 2 and {number(estimates.kappa(10))} in Theorem 3. "
    )
    if all(estimates.kappa(factor) <= 0 for factor in _FACTORS.values()):
        text += (
            "Without a positive κ the theorems make no statement about this run, and the table shows only the sizes of "
            "the terms relative to each other. (κ is positive if η<sub>loc</sub>T<sub>loc</sub> lies between 0.65 and "
            "1.35.)"
        )
    return [Paragraph(text), _conditions_table(estimates), _terms_table(estimates), _estimates_table(estimates)]


def _conditions_table(estimates: BoundEstimates) -> HtmlTable:
    product = None if estimates.smoothness is None else estimates.central_lr * estimates.smoothness
    small = NONE if product is None else _yes(product < 1)
    everyone = f"{_yes(estimates.sampling_prob == 1)} (q = {number(estimates.sampling_prob)})"
    plain = f"no: {', '.join(estimates.not_covered)}" if estimates.not_covered else "yes"
    rows = [
        ["κ > 0 (Theorem 2; 3)", f"{_yes(estimates.kappa(8) > 0)}; {_yes(estimates.kappa(10) > 0)}"],
        ["η<sub>glob</sub> L &lt; 1", f"{small} ({number(product)})"],
        ["Theorem 2: all users take part in every step", everyone],
        ["only local SGD and LAMB as printed in the paper", plain],
    ]
    return HtmlTable(["assumption of the theorems", "in this run"], rows, text_columns=2)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _terms_table(estimates: BoundEstimates) -> HtmlTable:
    terms = bound_terms(estimates)
    sums = {name: _total(terms, name) for name in ("theorem2", "theorem3", "corollary")}
    applying = [name for name, factor in (("theorem2", 8), ("theorem3", 10)) if estimates.kappa(factor) > 0]
    rows: list[list[str | Cell]] = []
    for term in terms:
        shares = [_share(getattr(term, name), total) for name, total in sums.items()]
        values = [number(getattr(term, name)) for name in applying]
        rows.append([esc(term.name), term.formula, *shares, *values])
    header = ["term", "in Theorem 2", "Theorem 2", "Theorem 3", "Corollary 1"]
    header += [f"Theorem {name.removeprefix('theorem')}" for name in applying]
    bands = [Band("", 2, "text"), Band("share of the sum", 3)]
    if applying:
        bands.append(Band("value", len(applying)))
    caption = f"e = η<sub>loc</sub>T<sub>loc</sub>. {_bounds_text(estimates, sums)}"
    return HtmlTable(header, rows, caption, text_columns=2, bands=bands)


def _bounds_text(estimates: BoundEstimates, sums: Mapping[str, float]) -> str:
    """Return the sums divided by kappa, for the theorems that apply."""
    bounds = [
        f"sum / κ in Theorem {theorem}: {number(sums[f'theorem{theorem}'] / estimates.kappa(factor))}"
        for theorem, factor in ((2, 8), (3, 10))
        if estimates.kappa(factor) > 0
    ]
    return f"Estimate of the bound on the mean of |∇f|²: {'; '.join(bounds)}." if bounds else ""


def _total(terms: Sequence[BoundTerm], name: str) -> float:
    return math.fsum(value for term in terms if (value := getattr(term, name)) is not None)


def _share(value: float | None, total: float) -> str:
    if value is None:
        return NONE
    share = value / total if total else 0.0
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{number(100 * share, 2 if share >= 1e-4 else 1)} %"


def _estimates_table(estimates: BoundEstimates) -> HtmlTable:
    rows = [
        [
            "η<sub>loc</sub>, T<sub>loc</sub>",
            f"{number(estimates.local_lr)}, {number(estimates.local_steps)}",
            "configured; T<sub>loc</sub> is a mean where local work is given in epochs",
        ],
        ["η<sub>glob</sub>", number(estimates.central_lr), "mean of the schedule over the steps taken"],
        [
            "T, H, q, ξ",
            f"{estimates.steps:,}, {len(estimates.trust)}, {number(estimates.sampling_prob)}, {number(estimates.xi)}",
            "configured",
        ],
        ["C, σ<sub>DP</sub>", f"{number(estimates.clip_norm)}, {number(estimates.sigma_dp)}", "configured"],
        [
            "C<sub>h</sub>",
            _span(estimates.clip_norms),
            "from C and the kind of clipping; global clipping has one layer, the whole model",
        ],
        ["d<sub>h</sub>", _span(estimates.sizes), "sizes of the layers"],
        ["R<sub>h</sub>", _span(estimates.trust), "largest trust ratio over the steps"],
        [
            "P<sub>h</sub>",
            _span(estimates.scaling),
            "R<sub>h</sub>/ξ − 1, which is the theorem's own bound and not measured",
        ],
        [
            "M<sub>h</sub>",
            _span(estimates.gradients),
            "mean over users of |g<sub>h</sub>| at the first local step; the largest over the steps",
        ],
        [
            "Ψ<sub>h</sub> intra + inter",
            _span(estimates.variances),
            "variance over users of |Δ<sub>h</sub>| in a step, mean over the steps. One visit per user cannot separate "
            "the two, and the bound needs only their sum",
        ],
        [
            "σ<sub>loc</sub>²",
            number(estimates.local_variance),
            "mean |g|² − |mean g|² over the local steps, with mean g = Δ/(η<sub>loc</sub>T<sub>loc</sub>); includes "
            "the drift of g along the local steps",
        ],
        [
            "σ<sub>glob</sub>²",
            number(estimates.global_variance),
            "spread of users' clipped deltas, scaled to |Δ/(η<sub>loc</sub>T<sub>loc</sub>)|²; includes "
            "σ<sub>loc</sub>²/T<sub>loc</sub>",
        ],
        [
            "L",
            number(estimates.smoothness),
            "|g<sub>last</sub> − g<sub>first</sub>| divided by the distance between their parameters, mean over users; "
            "an overestimate, because the two gradients are of different batches",
        ],
        ["f(0) − f*", number(estimates.first_loss), "users' loss in the first step; f* is at least 0"],
    ]
    caption = (
        "g is the gradient that a local step applies, after local clipping. L and M<sub>h</sub> need a copy of a "
        "gradient and come from one user in four. All estimates are computed from private data: no guarantee covers "
        "them."
    )
    return HtmlTable(["quantity", "estimate", "source"], rows, caption, text_columns=3)


def _span(values: Mapping[str, float] | Mapping[str, int] | None) -> str:
    return f"{number(min(values.values()))} to {number(max(values.values()))}" if values else NONE


def _picture(known: Sequence[tuple[RunGroup, BoundEstimates]]) -> Picture:
    by_group = [(group, bound_terms(estimates)) for group, estimates in known]
    names = [term.name for term in by_group[0][1]]

    def draw(axes: Axes) -> None:
        drawn: list[float] = []
        for group, terms in by_group:
            total = _total(terms, "theorem3")
            shares = {term.name: term.theorem3 / total for term in terms if term.theorem3 and total}
            heights = [len(names) - 1 - names.index(name) for name in shares]
            label = hover_label(*(f"{group.name}: {name}" for name in shares), shows="x")
            places = list(shares.values())
            axes.plot(places, heights, "o", color=group.colour, markersize=6, alpha=0.85, label=label)
            drawn += shares.values()
        axes.set_yticks(range(len(names)), list(reversed(names)))
        axes.set_ylim(-0.6, len(names) - 0.4)
        if drawn:
            log_axis(axes, axes.xaxis, drawn)
        axes.set_xlabel("share of the sum (logarithmic)")

    alt = "The terms of Theorem 3, relative to their sum"
    return make_picture("bound-terms", alt, [Panel("", draw)], legend(group for group, _ in known))


def _terms_csv(known: Sequence[tuple[RunGroup, BoundEstimates]]) -> CsvTable:
    rows: list[list[CsvValue]] = [
        [group.name, term.name, term.theorem2, term.theorem3, term.corollary]
        for group, estimates in known
        for term in bound_terms(estimates)
    ]
    return CsvTable("bound-terms", ["run", "term", "theorem_2", "theorem_3", "corollary_1"], rows)


def _estimates_csv(known: Sequence[tuple[RunGroup, BoundEstimates]]) -> CsvTable:
    rows: list[list[CsvValue]] = []
    for group, estimates in known:
        rows += [[group.name, "", name, value] for name, value in _single_values(estimates).items()]
        for name, values in _layer_values(estimates).items():
            rows += [[group.name, layer, name, value] for layer, value in (values or {}).items()]
    return CsvTable("bound-estimates", ["run", "layer", "quantity", "value"], rows)


def _single_values(estimates: BoundEstimates) -> dict[str, float | None]:
    return {
        "eta_loc": estimates.local_lr,
        "T_loc": estimates.local_steps,
        "eta_glob": estimates.central_lr,
        "T": estimates.steps,
        "q": estimates.sampling_prob,
        "xi": estimates.xi,
        "C": estimates.clip_norm,
        "sigma_dp": estimates.sigma_dp,
        "sigma_loc_squared": estimates.local_variance,
        "sigma_glob_squared": estimates.global_variance,
        "L": estimates.smoothness,
        "first_loss": estimates.first_loss,
        "kappa_theorem_2": estimates.kappa(8),
        "kappa_theorem_3": estimates.kappa(10),
    }


def _layer_values(estimates: BoundEstimates) -> dict[str, Mapping[str, float] | Mapping[str, int] | None]:
    return {
        "C_h": estimates.clip_norms,
        "d_h": estimates.sizes,
        "R_h": estimates.trust,
        "M_h": estimates.gradients,
        "Psi_intra_plus_inter": estimates.variances,
    }
