"""Reports: the HTML page about runs, pictures of populations and privacy plans, generated sections of Markdown files.

    report, Report, require_page              the page of `sotto report` (page.py)
    speaker_distribution, epsilon_contours    single pictures (pictures.py)
    write_section, require_section            sections of Markdown files (markdown.py)

Sub-packages: `reading` reads runs, `drawing` makes pictures and page elements, `sections` holds the page's sections.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.reports.markdown import require_section, write_section
    from sottovoce.reports.page import Report, report, require_page
    from sottovoce.reports.pictures import UserAmounts, epsilon_contours, speaker_distribution

__all__ = [
    "Report",
    "UserAmounts",
    "epsilon_contours",
    "report",
    "require_page",
    "require_section",
    "speaker_distribution",
    "write_section",
]

_MODULES = {
    "Report": "page",
    "report": "page",
    "require_page": "page",
    "UserAmounts": "pictures",
    "epsilon_contours": "pictures",
    "speaker_distribution": "pictures",
    "require_section": "markdown",
    "write_section": "markdown",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: the page needs torch, which the other modules do without."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
