"""The command `sotto`. An error that a user can cause is one line, not a traceback."""

import os
import sys
from typing import Annotated

import typer

from sottovoce.cli import bench, config, data, demo, estimate, privacy, recognise, report, train
from sottovoce.cli.console import note, stderr
from sottovoce.errors import SottoError, expectation
from sottovoce.extensions import import_extension
from sottovoce.processes import leave, under_torchrun
from sottovoce.version import VERSION

app = typer.Typer(
    name="sotto",
    help="Federated learning with user-level differential privacy for speech recognition.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(config.app, name="config")
app.add_typer(train.app, name="train")
app.add_typer(privacy.app, name="privacy")
app.add_typer(bench.app, name="bench")
app.command("eval")(recognise.evaluate)
app.command("transcribe")(recognise.transcribe)
app.command("model")(recognise.model)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.command("estimate")(estimate.estimate)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sotto {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    extensions: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import an extension: a module or a .py file. Repeatable."),
    ] = None,
) -> None:
    """Accept the options that come before a command."""
    for module in extensions or ():
        import_extension(module)


def run() -> None:
    """Run the command line and exit with its code: 0 success, 1 error, 2 wrong usage, 130 interrupted."""
    try:
        code = app(standalone_mode=False)
    except SottoError as error:
        note(f"error: {error}")
        code = 1
    except typer.TyperException as error:
        code = _usage_error(error)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - the interpreter flushes it at the end
        code = 141
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        note(
            f"error: {error.strerror or error}{where}. Complete work is kept; fix the cause and run the command again."
        )
        code = 1
    stderr.show_cursor(True)  # a worker that was ended at once could not do it; without a terminal, nothing happens
    if code == 130:
        note("Interrupted. Run the same command again to resume.")
    code = code if isinstance(code, int) else 0
    if under_torchrun():
        leave(code)
    sys.exit(code)


def _usage_error(error: typer.TyperException) -> int:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if "\n" in message.strip():  # the help of a command group, given without a command
        typer.echo(message, err=True)
    else:
        where, colon, reason = message.partition(": ")
        message = f"{where}{colon}{expectation(reason)}".rstrip(".") + "."
        hint = f" See `{context.command_path} --help`." if context else ""
        note(f"error: {message}{hint}")
    return error.exit_code
