"""Reports: the HTML page about runs, pictures of populations and privacy plans, generated sections of Markdown files.

    report, Report, require_page              the page of `sotto report` (page.py)
    speaker_distribution, epsilon_contours    single pictures (pictures.py)
    write_section, require_section            sections of Markdown files (markdown.py)

Sub-packages: `reading` reads runs, `drawing` makes pictures and page elements, `sections` holds the page's sections.
Names are loaded when they are first used: the page needs torch, the other modules do not.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

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

__getattr__ = lazy_names(
    __name__,
    {
        "markdown": "require_section write_section",
        "page": "Report report require_page",
        "pictures": "UserAmounts epsilon_contours speaker_distribution",
    },
)
