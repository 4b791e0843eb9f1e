"""The privacy statement of every run, as `sotto privacy explain` has it, and whether its ledger holds.

A ledger that does not hold is a PrivacyError: there is no page with an epsilon that nobody can stand for.
"""

from collections.abc import Sequence

from markdown_it import MarkdownIt

from sottovoce.privacy.claims import open_account, statement
from sottovoce.reports.drawing.blocks import Block, Fold, Markup, Part, Sheet, Text, Value, esc
from sottovoce.reports.reading.groups import Group
from sottovoce.reports.reading.records import Record
from sottovoce.runs.verify import verify


def privacy(groups: Sequence[Group]) -> Part:
    """Return what each run guarantees."""
    blocks: list[Block] = []
    rows: list[list[Value]] = []
    federated = [group for group in groups if group.kind == "federated"]
    for group in federated:
        for run in group.runs:
            rows.append([run.name, run.guarantee, *_verified(run)])
        blocks.append(Fold(_summary(group), _told(group), open=len(federated) == 1))
    if len(federated) < len(groups):
        blocks.append(Text("Central runs see all audio together: they guarantee nothing to anyone.", "note"))
    sheet = Sheet("privacy", ["run", "guarantee", "ledger_lines", "releases", "checkpoints_that_agree"], rows)
    return Part("privacy", "Privacy statement", blocks, [sheet])


def require_ledgers(records: Sequence[Record]) -> None:
    """Raise PrivacyError where a ledger does not hold, before anything is drawn or written."""
    for run in records:
        _verified(run)


def _verified(run: Record) -> list[Value]:
    if not run.has_ledger:
        return [None, None, None]
    found = verify(run.path)
    return [found.lines, found.releases, found.checkpoints]


def _summary(group: Group) -> str:
    guarantee = group.first.guarantee or "nothing is said"
    return f"<b>{esc(group.name)}</b>: {esc(guarantee)}"


def _told(group: Group) -> list[Block]:
    run = group.first
    if not run.has_ledger:
        text = "There is no ledger: the run is older than ledgers, or it was removed. Train again to have one."
        return [Text(text, "warning")]
    lines, releases, checkpoints = _verified(run)
    blocks: list[Block] = [Markup(as_html(statement(open_account(run.path))))]
    held = (
        f"The ledger holds: {lines} lines, {releases} releases, in one chain; {checkpoints} checkpoints agree with it."
    )
    blocks.append(Text(held, "note"))
    if len(group.runs) > 1:
        others = f"The other {len(group.runs) - 1} seeds have the same mechanism; their ledgers hold too."
        blocks.append(Text(others, "note"))
    return blocks


def as_html(markdown: str) -> str:
    """Return a statement as part of a page: without its title, its headings one level lower, its tables in boxes."""
    _, _, text = markdown.partition("\n")
    html: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    html = html.replace("<h2>", "<h3>").replace("</h2>", "</h3>")
    return html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
