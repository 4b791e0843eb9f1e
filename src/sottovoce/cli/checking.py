"""sotto data check: compare a download with what is published."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.console import ProgressDisplay, note, print_json, print_table
from sottovoce.data.corpora.checking import DownloadPart, check_commonvoice, check_librispeech, require_complete

app = typer.Typer(help="Compare a download with what is published. Nothing is written.", no_args_is_help=True)

Root = Annotated[Path, typer.Argument(metavar="ROOT", help="The folder that `sotto data prepare` takes.")]
Subsets = Annotated[
    list[str] | None, typer.Option("--subset", help="Only this subset. Repeat for several.", show_default="all seven")
]
Languages = Annotated[
    list[str] | None,
    typer.Option("--language", help="Only this language. Repeat for several.", show_default="en, fr, de"),
]


@app.command()
def librispeech(root: Root, subset: Subsets = None, as_json: AsJson = False) -> None:
    """Check LibriSpeech: archives by size and MD5, folders by speakers, chapters, utterances and hours.

    Archives are checked where they lie in ROOT or beside it. The exit code is 1 where something is missing or damaged.

    Example: sotto data check librispeech corpora/LibriSpeech --subset train-clean-100 --subset dev-clean
    """
    _show(root, check_librispeech, subset or [], as_json)


@app.command()
def commonvoice(root: Root, language: Languages = None, as_json: AsJson = False) -> None:
    """Check Common Voice 13: archives by size and SHA-256, tables by rows and speakers, and that clips are there.

    Archives are checked where they lie in ROOT or beside it. The exit code is 1 where something is missing or damaged.

    Example: sotto data check commonvoice corpora/cv-corpus-13.0-2023-03-09 --language en
    """
    _show(root, check_commonvoice, language or [], as_json)


def _show(root: Path, check: Callable[..., list[DownloadPart]], chosen: Sequence[str], as_json: bool) -> None:
    with ProgressDisplay() as progress:
        findings = check(root, chosen, progress)
    if as_json:
        print_json({"root": str(root), "findings": [asdict(one) for one in findings]})
    else:
        rows = [[one.subset, one.found, one.expected, str(one)] for one in findings]
        print_table(str(root), ["subset", "found", "expected", "verdict"], rows, text_columns=4)
    require_complete(root, findings)
    if not as_json:
        note(f"{root}: everything is as published.")
