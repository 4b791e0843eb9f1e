"""The privacy statement of every run, as `sotto privacy explain` prints it, and the check of its ledger.

An invalid ledger raises PrivacyError, so no page shows an epsilon that the ledger does not support.
"""

from collections.abc import Sequence

from markdown_it import MarkdownIt

from sottovoce.privacy.accounting import short_exponents
from sottovoce.privacy.claims import open_account, statement
from sottovoce.reports.drawing.elements import (
    Collapsible,
    CsvTable,
    CsvValue,
    Element,
    Paragraph,
    RawHtml,
    Section,
    esc,
)
from sottovoce.reports.reading.records import RunRecord
from sottovoce.reports.reading.run_groups import RunGroup, all_runs


def privacy_section(groups: Sequence[RunGroup]) -> Section:
    """Return the guarantee of every federated run."""
    federated = [group for group in groups if group.kind == "federated"]
    elements: list[Element] = [Collapsible(_summary(group), _statement(group)) for group in federated]
    if len(federated) < len(groups):
        elements.append(Paragraph("Central training sees the audio of all speakers and guarantees nothing.", "note"))
    header = ["run", "guarantee", "ledger_lines", "releases", "checkpoints_that_agree"]
    table = CsvTable("privacy", header, [_csv_row(run) for run in all_runs(federated)])
    return Section("privacy", "Privacy statement", elements, [table])


def _csv_row(run: RunRecord) -> list[CsvValue]:
    ledger = run.verified_ledger
    counts = [None, None, None] if ledger is None else [ledger.lines, ledger.releases, ledger.checkpoints]
    return [run.name, run.guarantee, *counts]


def _summary(group: RunGroup) -> str:
    guarantee = short_exponents(group.first.guarantee) or "the run states no guarantee"
    if guarantee.startswith("none: "):
        guarantee = f"no guarantee, because {guarantee.removeprefix('none: ')}"
    return f"<b>{esc(group.name)}</b>: {esc(guarantee)}"


def _statement(group: RunGroup) -> list[Element]:
    run = group.first
    ledger = run.verified_ledger
    if ledger is None:
        text = "There is no ledger: an older version trained the run, or the file was removed. Train again to get one."
        return [Paragraph(text, "warning")]
    valid = (
        f"The ledger is valid: {ledger.lines} lines with {ledger.releases} releases in one chain of hashes. "
        f"It agrees with all saved checkpoints ({ledger.checkpoints})."
    )
    elements: list[Element] = [RawHtml(as_html(statement(open_account(run.path)))), Paragraph(valid, "note")]
    if len(group.runs) > 1:
        others = f"The other {len(group.runs) - 1} seeds use the same mechanism, and their ledgers are valid too."
        elements.append(Paragraph(others, "note"))
    return elements


def as_html(markdown: str) -> str:
    """Return a statement as HTML for the page: no title, headings one level lower, tables that can scroll."""
    _, _, text = markdown.partition("\n")
    html: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    html = html.replace("<h2>", "<h3>").replace("</h2>", "</h3>")
    return html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
