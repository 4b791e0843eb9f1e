"""sotto bench: the results of the paper, one benchmark each, in the paper's size and in a size for two cores.

The list of its commands.
"""

from typing import Final

import typer

from sottovoce.cli.bench_runs import list_benches, run
from sottovoce.cli.bench_shown import export, show, summary

COMMANDS: Final = (run, show, export, summary)

app = typer.Typer(no_args_is_help=True)
app.command("list")(list_benches)
for _command in COMMANDS:
    app.command()(_command)
