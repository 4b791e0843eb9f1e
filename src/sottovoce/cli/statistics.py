"""Speaker statistics on the command line: a table, and a figure of the distribution."""

from dataclasses import asdict, astuple
from pathlib import Path

from sottovoce.cli.console import counted, note, print_json, print_table
from sottovoce.data.population import Population
from sottovoce.data.statistics import SpeakerStatistics, paper_statistics
from sottovoce.files import make_folder

_HEADER = ["subset", "hours", "speakers", "utterances", "mean", "std", "min", "max"]


def draw_speakers(populations: dict[str, Population], picture: Path) -> None:
    """Draw the distribution of minutes and utterances per user in each population."""
    from sottovoce.reports.pictures import UserAmounts, speaker_distribution

    amounts = {
        label: UserAmounts(population.seconds_by_user() / 60, population.utterances_by_user())
        for label, population in populations.items()
    }
    make_folder(picture.absolute().parent)
    speaker_distribution(amounts, picture)


def print_statistics(rows: list[SpeakerStatistics], picture: Path | None, as_json: bool) -> None:
    """Print the statistics; a subset that the paper lists is followed by the paper's row."""
    paper = paper_statistics(row.subset for row in rows)
    if as_json:
        document = {
            "subsets": [asdict(row) for row in rows],
            "paper": {subset: asdict(row) for subset, row in paper.items()},
            "figure": str(picture) if picture else None,
        }
        print_json(document)
        return
    shown = []
    for row in rows:
        minutes = (row.minutes_mean, row.minutes_std, row.minutes_min, row.minutes_max)
        counts = [f"{row.hours:,.2f}", f"{row.speakers:,}", f"{row.utterances:,}"]
        shown.append([row.subset, *counts, *(f"{value:,.2f}" for value in minutes)])
        if row.subset in paper:
            hours, speakers, *printed = astuple(paper[row.subset])
            shown.append(["  (paper)", f"{hours:,}", f"{speakers:,}", "", *(f"{value:,}" for value in printed)])
    print_table("mean, std, min, max: minutes per speaker", _HEADER, shown)
    for row in rows:
        if row.unwritable:
            note(f"{row.subset}: {counted(row.unwritable, 'utterance')} with characters outside the token set.")
    if picture:
        note(f"Distribution: {picture}")
