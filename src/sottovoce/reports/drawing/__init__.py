"""Drawing a page: its elements, its pictures, the formats of its numbers, its style sheet."""

from sottovoce.reports.drawing.charts import LegendEntry, Panel, Picture, make_picture
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
    RawHtml,
    Section,
    esc,
)
from sottovoce.reports.drawing.hover import hover_label
from sottovoce.reports.drawing.script import SCRIPT
from sottovoce.reports.drawing.style import STYLE

__all__ = [
    "SCRIPT",
    "STYLE",
    "Band",
    "CaptionedFigure",
    "Cell",
    "Collapsible",
    "CsvTable",
    "CsvValue",
    "Element",
    "HtmlTable",
    "LegendEntry",
    "Panel",
    "Paragraph",
    "Picture",
    "RawHtml",
    "Section",
    "esc",
    "hover_label",
    "make_picture",
]
