"""Provenance of the numbers: configurations, seeds, hashes and versions."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from sottovoce.privacy.ledger import LEDGER_FILE, read_ledger
from sottovoce.reports.drawing.elements import Collapsible, CsvTable, CsvValue, Element, HtmlTable, Section, esc
from sottovoce.reports.reading.records import RunRecord
from sottovoce.reports.reading.run_groups import RunGroup, all_runs
from sottovoce.version import VERSION


def provenance_section(groups: Sequence[RunGroup]) -> Section:
    """Return seeds, hashes, versions and configurations of all runs."""
    runs = all_runs(groups)
    elements: list[Element] = [_versions(), *(_run_details(run) for run in runs)]
    rows: list[list[CsvValue]] = [[run.name, *row] for run in runs for row in _settings(run)]
    table = CsvTable("settings", ["run", "setting", "value", "from"], rows)
    return Section("provenance", "Configuration and provenance", elements, [table])


def _versions() -> HtmlTable:
    versions = {"sottovoce": VERSION, "Python": platform.python_version(), "torch": version("torch")}
    rows = [[name, esc(number)] for name, number in versions.items()]
    caption = "The versions that made this page. The version that trained a federated run is in its ledger."
    return HtmlTable(["", "version"], rows, caption, text_columns=2)


def _run_details(run: RunRecord) -> Collapsible:
    identity = [[esc(name), f"<code>{esc(value)}</code>"] for name, value in _identity(run).items()]
    settings = [[f"<code>{esc(cell)}</code>" for cell in row] for row in _settings(run)]
    tables = [
        HtmlTable(["", ""], identity, text_columns=2),
        HtmlTable(["setting", "value", "from"], settings, text_columns=3),
    ]
    return Collapsible(f"<b>{esc(run.name)}</b>: seed {esc(run.setting('seed'))}, hashes and configuration", tables)


def _identity(run: RunRecord) -> dict[str, str]:
    """Return the folder, the seed and the hashes that identify a run.

    A hash of the users tells with certainty whether somebody is among them, and so may the folder of a benchmark's run,
    which is named after such a hash. The page of a run with secure randomness has neither.
    """
    identity = {} if run.secure else {"folder": str(run.path)}
    identity["seed"] = str(run.setting("seed"))
    if run.trainable is not None:
        identity["trained parameters"] = ", ".join(run.trainable)
    hashes = {name: value for name, value in run.config.data.items() if value and not (run.secure and name == "users")}
    identity |= {f"sha256 of {name}": str(value) for name, value in hashes.items()}
    ledger = read_ledger(run.path / LEDGER_FILE) if run.has_ledger else None
    if ledger is not None:
        identity |= {"trained with": ledger.header.code, "sha256 of its configuration": ledger.header.config}
        identity["head of its ledger"] = ledger.mark.head
    return identity


def _settings(run: RunRecord) -> list[tuple[str, str, str]]:
    """Return every setting with its value and the source of the value."""
    return [
        (key, json.dumps(value), run.config.sources.get(key, "default")) for key, value in _leaves(run.config.config)
    ]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
