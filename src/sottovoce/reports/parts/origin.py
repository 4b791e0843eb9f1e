"""Where the numbers come from: resolved configurations, seeds, hashes, versions."""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from sottovoce.privacy.ledger import LEDGER_FILE, line_hash, read_ledger
from sottovoce.reports.drawing.blocks import Block, Fold, Part, Sheet, Table, Value, esc
from sottovoce.reports.reading.groups import Group
from sottovoce.reports.reading.records import Record
from sottovoce.version import VERSION


def origin(groups: Sequence[Group]) -> Part:
    """Return seeds, hashes, versions and configurations of all runs."""
    runs = [run for group in groups for run in group.runs]
    rows: list[list[Value]] = [[run.name, *row] for run in runs for row in _settings(run)]
    blocks: list[Block] = [_versions()]
    for run in runs:
        marks = [[esc(name), f"<code>{esc(value)}</code>"] for name, value in _marks(run).items()]
        settings = [[f"<code>{esc(cell)}</code>" for cell in row] for row in _settings(run)]
        tables: list[Block] = [
            Table(["", ""], marks, text_columns=2),
            Table(["setting", "value", "from"], settings, text_columns=3),
        ]
        blocks.append(
            Fold(f"<b>{esc(run.name)}</b>: seed {esc(run.setting('seed'))}, hashes and configuration", tables)
        )
    return Part(
        "origin", "Where this comes from", blocks, [Sheet("settings", ["run", "setting", "value", "from"], rows)]
    )


def _versions() -> Block:
    found = {"sottovoce": VERSION, "Python": platform.python_version(), "torch": version("torch")}
    caption = "Versions that this page was made with. The version that a run was trained with is in its ledger."
    return Table(["", "version"], [[name, esc(one)] for name, one in found.items()], caption, text_columns=2)


def _marks(run: Record) -> dict[str, str]:
    """Return what tells this run from others."""
    found = {"folder": str(run.path), "seed": str(run.setting("seed"))}
    found |= {f"sha256 of {name}": str(value) for name, value in run.data.items() if value}
    if run.has_ledger:
        lines = read_ledger(run.path / LEDGER_FILE)
        found |= {"trained with": str(lines[0]["code"]), "sha256 of its configuration": str(lines[0]["config"])}
        found["head of its ledger"] = line_hash(lines[-1])
    return found


def _settings(run: Record) -> list[tuple[str, str, str]]:
    return [(key, json.dumps(value), run.sources.get(key, "default")) for key, value in _leaves(run.config)]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
