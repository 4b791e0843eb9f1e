"""The sections of the page, one file each.

A section is a function from the groups of runs to a `Section`. To add one, write its function and put it in SECTIONS.
The results come first on every page. A section without elements is not shown.
"""

from collections.abc import Callable, Sequence

from sottovoce.reports.drawing.elements import Section
from sottovoce.reports.reading.run_groups import RunGroup
from sottovoce.reports.sections.bound import bound_section
from sottovoce.reports.sections.curves import privacy_utility_section, steps_section
from sottovoce.reports.sections.dynamics import dynamics_section
from sottovoce.reports.sections.layer_figures import norms_section, scaling_section
from sottovoce.reports.sections.lead import opening_sentences
from sottovoce.reports.sections.privacy_statement import privacy_section
from sottovoce.reports.sections.provenance import provenance_section
from sottovoce.reports.sections.results_table import results_section
from sottovoce.reports.sections.speakers import speakers_section

SECTIONS: tuple[Callable[[Sequence[RunGroup]], Section], ...] = (
    steps_section,
    privacy_utility_section,
    norms_section,
    dynamics_section,
    scaling_section,
    speakers_section,
    privacy_section,
    bound_section,
    provenance_section,
)
"""The sections after the results, in the order of the page."""

__all__ = ["SECTIONS", "opening_sentences", "results_section"]
