"""The elements of the page (paragraphs, tables, figures, collapsible blocks) and the CSV tables saved beside it.

The HTML in these classes is written by this package. Text from outside (names, paths, settings) must go through `esc`
before it becomes part of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from sottovoce.reports.drawing.charts import INK, DrawnPanel, LegendEntry, Picture

CsvValue = str | int | float | None


def esc(text: object) -> str:
    """Return text with the special characters of HTML escaped."""
    return escape(str(text), quote=True)


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text; behind the first sentence of a long one, the rest is folded."""

    html: str
    kind: str = ""  # "note", "warning", or "" for ordinary text

    def render(self) -> str:
        """Return the HTML."""
        first, rest = (self.html, "") if self.kind else first_sentence(self.html)
        return f"<p{_class(self.kind)}>{first}</p>{_folded(rest, 'More')}"


_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[^a-z\W]|<)")
_LONG = 160  # characters after the first sentence that are folded


def first_sentence(html: str) -> tuple[str, str]:
    """Return the first sentence of a long text and the rest of it; all of a short text and nothing."""
    for end in _SENTENCE_END.finditer(html):
        first, rest = html[: end.start()], html[end.end() :]
        if _balanced(first):
            return (first, rest) if len(rest) > _LONG else (html, "")
    return html, ""


def _balanced(html: str) -> bool:
    """Return whether every element that begins in a text also ends in it."""
    return len(re.findall(r"<\w", html)) == html.count("</")


def _folded(html: str, summary: str) -> str:
    return f'<details class="more"><summary>{summary}</summary><p>{html}</p></details>' if html else ""


def _caption(html: str) -> str:
    first, rest = first_sentence(html)
    return f"{first}{_folded(rest, 'How to read it')}"


@dataclass(frozen=True)
class Cell:
    """A table cell with a style class of its own, or one that spans several rows."""

    html: str
    rows: int = 1
    kind: str = ""


@dataclass(frozen=True)
class Band:
    """A heading that spans several columns, above the header of a table."""

    html: str
    columns: int
    kind: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """A table; on a narrow screen it scrolls sideways in its own box, or stacks the cells of a row."""

    header: Sequence[str | Cell]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    text_columns: int = 1  # the first columns hold text, the others numbers
    bands: Sequence[Band] = ()
    sticky: bool = False  # the first column stays in view while the others scroll
    stacked: Sequence[str] = ()  # what stands above each cell, as plain text, where a narrow screen stacks them

    def render(self) -> str:
        """Return the HTML."""
        bands = "".join(f'<th colspan="{band.columns}"{_class(band.kind)}>{band.html}</th>' for band in self.bands)
        bands = f'<tr class="bands">{bands}</tr>' if bands else ""
        header = "".join(self._cell(name, column, "th") for column, name in enumerate(self.header))
        rows = "".join(self._row(row) for row in self.rows)
        kind = f"{' sticky' if self.sticky else ''}{' stacked' if self.stacked else ''}"
        caption = f'<div class="caption">{_caption(self.caption)}</div>' if self.caption else ""
        return (
            f'<div class="scroll{kind}" tabindex="0"><table><thead>{bands}<tr>{header}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>{caption}"
        )

    def _row(self, row: Sequence[str | Cell]) -> str:
        spanned = len(self.header) - len(row)  # leading cells that a row above spans
        return f"<tr>{''.join(self._cell(cell, spanned + place, 'td') for place, cell in enumerate(row))}</tr>"

    def _cell(self, content: str | Cell, column: int, tag: str) -> str:
        cell = content if isinstance(content, Cell) else Cell(content)
        kind = " ".join(filter(None, ("text" if column < self.text_columns else "", cell.kind)))
        rows = f' rowspan="{cell.rows}"' if cell.rows > 1 else ""
        label = f' data-label="{esc(self.stacked[column])}"' if self.stacked and tag == "td" else ""
        return f"<{tag}{rows}{_class(kind)}{label}>{cell.html}</{tag}>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


@dataclass(frozen=True)
class CaptionedFigure:
    """A picture with its legend and a caption."""

    picture: Picture
    caption: str

    def render(self) -> str:
        """Return the HTML: the legend, every panel, the caption."""
        picture = self.picture
        entries = "".join(_legend_entry(entry) for entry in picture.legend)
        legend = f'<ul class="legend">{entries}</ul>' if entries else ""
        kind = " narrow" if picture.broad else ""
        panels = "".join(_panel(panel, kind) for panel in picture.panels)
        panels += "".join(_panel(panel, " broad") for panel in picture.broad)
        return (
            f'<figure role="group" aria-label="{esc(picture.alt)}">{legend}'
            f'<div class="panels {picture.layout}" role="img" aria-label="{esc(picture.alt)}">{panels}</div>'
            f"<figcaption>{_caption(self.caption)}</figcaption></figure>"
        )


def _panel(panel: DrawnPanel, kind: str) -> str:
    # In single quotes: JSON has many double ones.
    text = escape(panel.values or "", quote=False).replace("'", "&#39;")
    values = f" data-values='{text}'" if text else ""
    return f'<div class="panel{kind}"{values}>{panel.svg}</div>'


def _legend_entry(entry: LegendEntry) -> str:
    colour = "currentColor" if entry.colour == INK else entry.colour
    dashes = ' stroke-dasharray="5 3"' if entry.dashed else ""
    line = f'<line x1="0" y1="2" x2="24" y2="2" stroke="{colour}" stroke-width="3"{dashes}/>'
    swatch = f'<svg class="swatch" viewBox="0 0 24 4" aria-hidden="true">{line}</svg>'
    return f"<li>{swatch}{esc(entry.label)}</li>"


@dataclass(frozen=True)
class Collapsible:
    """Elements behind a summary line; a click on the line shows them."""

    summary: str
    elements: Sequence["Element"]
    open: bool = False

    def render(self) -> str:
        """Return the HTML."""
        inside = "".join(element.render() for element in self.elements)
        return f"<details{' open' if self.open else ''}><summary>{self.summary}</summary>{inside}</details>"


@dataclass(frozen=True)
class RawHtml:
    """HTML that is shown unchanged."""

    html: str

    def render(self) -> str:
        """Return the HTML."""
        return self.html


Element = Paragraph | HtmlTable | CaptionedFigure | Collapsible | RawHtml


@dataclass(frozen=True)
class CsvTable:
    """Unrounded numbers for one CSV file."""

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[CsvValue]] = field(repr=False)


@dataclass(frozen=True)
class Section:
    """One section of the page, with the CSV tables that belong to it."""

    key: str  # the target of links to it
    title: str
    elements: Sequence[Element]
    tables: Sequence[CsvTable] = ()

    def render(self) -> str:
        """Return the HTML."""
        elements = "\n".join(element.render() for element in self.elements)
        return f'<section id="{self.key}"><h2>{esc(self.title)}</h2>\n{elements}\n</section>'

    @property
    def pictures(self) -> list[Picture]:
        """All pictures of the section, also those in collapsible elements."""
        return _pictures(self.elements)


def _pictures(elements: Sequence[Element]) -> list[Picture]:
    pictures: list[Picture] = []
    for element in elements:
        if isinstance(element, CaptionedFigure):
            pictures.append(element.picture)
        elif isinstance(element, Collapsible):
            pictures += _pictures(element.elements)
    return pictures
