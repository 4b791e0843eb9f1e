"""What a page is made of: parts of texts, tables, figures and folded blocks, and the sheets of numbers beside them.

Everything here is HTML that was put together by this package; whatever comes from outside (names, paths, settings) goes
through `esc` first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from sottovoce.reports.drawing.charts import INK, Key, Picture

Value = str | int | float | None


def esc(text: object) -> str:
    """Return a text that stands for itself in HTML."""
    return escape(str(text), quote=True)


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    html: str
    kind: str = ""  # note, warning or nothing

    def render(self) -> str:
        """Return the HTML."""
        return f'<p class="{self.kind}">{self.html}</p>' if self.kind else f"<p>{self.html}</p>"


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than its content."""

    html: str
    rows: int = 1
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """A table; it scrolls in a box of its own where the screen is narrow."""

    header: Sequence[str | Cell]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    text_columns: int = 1  # the first ones hold text, the others numbers
    bands: Sequence[tuple[str, int, str]] = ()  # above the header: what, over how many columns, kind
    sticky: bool = False  # the first column stays when the others scroll

    def render(self) -> str:
        """Return the HTML."""
        bands = "".join(f'<th colspan="{span}"{_class(kind)}>{what}</th>' for what, span, kind in self.bands)
        bands = f'<tr class="bands">{bands}</tr>' if bands else ""
        header = "".join(self._cell(name, place, "th") for place, name in enumerate(self.header))
        rows = "".join(self._row(row) for row in self.rows)
        sticky = " sticky" if self.sticky else ""
        caption = f'<p class="caption">{self.caption}</p>' if self.caption else ""
        return (
            f'<div class="scroll{sticky}" tabindex="0"><table><thead>{bands}<tr>{header}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>{caption}"
        )

    def _row(self, row: Sequence[str | Cell]) -> str:
        missing = len(self.header) - len(row)  # the first cells of a row may reach down from one above
        return f"<tr>{''.join(self._cell(cell, place + missing, 'td') for place, cell in enumerate(row))}</tr>"

    def _cell(self, cell: str | Cell, place: int, tag: str) -> str:
        found = cell if isinstance(cell, Cell) else Cell(cell)
        kind = " ".join(filter(None, ("text" if place < self.text_columns else "", found.kind)))
        rows = f' rowspan="{found.rows}"' if found.rows > 1 else ""
        return f"<{tag}{rows}{_class(kind)}>{found.html}</{tag}>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


@dataclass(frozen=True)
class Drawn:
    """A figure with its caption."""

    picture: Picture
    caption: str

    def render(self) -> str:
        """Return the HTML: every panel, what its colours mean, what to look for."""
        picture = self.picture
        keys = "".join(_key(key) for key in picture.keys)
        legend = f'<ul class="keys">{keys}</ul>' if keys else ""
        panels = "".join(f'<div class="panel">{svg}</div>' for svg in picture.svgs)
        wide = " wide" if picture.wide else ""
        return (
            f'<figure role="group" aria-label="{esc(picture.alt)}">{legend}'
            f'<div class="panels{wide}" role="img" aria-label="{esc(picture.alt)}">{panels}</div>'
            f"<figcaption>{self.caption}</figcaption></figure>"
        )


def _key(key: Key) -> str:
    line, colour = "dashed" if key.dashed else "solid", "currentColor" if key.colour == INK else key.colour
    return f'<li><span class="swatch" style="border-top:3px {line} {colour}"></span>{esc(key.label)}</li>'


@dataclass(frozen=True)
class Fold:
    """Blocks behind a line that opens them."""

    summary: str
    blocks: Sequence["Block"]
    open: bool = False

    def render(self) -> str:
        """Return the HTML."""
        inside = "".join(block.render() for block in self.blocks)
        return f"<details{' open' if self.open else ''}><summary>{self.summary}</summary>{inside}</details>"


@dataclass(frozen=True)
class Markup:
    """HTML as it is."""

    html: str

    def render(self) -> str:
        """Return the HTML."""
        return self.html


Block = Text | Table | Drawn | Fold | Markup


@dataclass(frozen=True)
class Sheet:
    """Numbers, as they are, for a CSV file."""

    name: str
    header: Sequence[str]
    rows: Sequence[Sequence[Value]] = field(repr=False)


@dataclass(frozen=True)
class Part:
    """One part of the page."""

    key: str
    title: str
    blocks: Sequence[Block]
    sheets: Sequence[Sheet] = ()

    def render(self) -> str:
        """Return the HTML."""
        blocks = "\n".join(block.render() for block in self.blocks)
        return f'<section id="{self.key}"><h2>{esc(self.title)}</h2>\n{blocks}\n</section>'

    @property
    def pictures(self) -> list[Picture]:
        """All pictures of the part, folded ones too."""
        return _pictures(self.blocks)


def _pictures(blocks: Sequence[Block]) -> list[Picture]:
    found: list[Picture] = []
    for block in blocks:
        if isinstance(block, Drawn):
            found.append(block.picture)
        elif isinstance(block, Fold):
            found += _pictures(block.blocks)
    return found
