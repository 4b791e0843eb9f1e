"""How a benchmark prints what it measured."""

import json
from collections.abc import Mapping


def print_report(report: Mapping[str, float], *, as_json: bool) -> None:
    """Print one JSON document, or a line for every figure."""
    if as_json:
        print(json.dumps(report, indent=2))
        return
    for what, value in report.items():
        print(f"  {what:55} {value:10.3f}")
