"""Reading runs for a report: their folders, groups of seeds, values per layer, the convergence bound."""

from sottovoce.reports.reading.metrics import read_metrics
from sottovoce.reports.reading.records import RunRecord, SetName, read_records
from sottovoce.reports.reading.run_groups import RunGroup, all_runs, group_runs

__all__ = [
    "RunGroup",
    "RunRecord",
    "SetName",
    "all_runs",
    "group_runs",
    "read_metrics",
    "read_records",
]
