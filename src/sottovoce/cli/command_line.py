"""The command line: all commands, and the options before them. An error that a user can cause is one line."""

import os
import sys
from typing import Annotated

import typer.main
from typer.core import TyperGroup

from sottovoce.cli.console import note, stderr
from sottovoce.cli.lazy_command import MARKUP, LazyCommand
from sottovoce.errors import SottoError, expectation
from sottovoce.version import VERSION

# Name, place, and the first paragraph of the help; tests/cli/test_cli.py compares it with the command's own.
COMMANDS = (
    (
        "eval",
        "evaluate:evaluate",
        "Print loss, WER and CER of models on speech, with intervals, by speaker and by group. Every utterance counts.",
    ),
    (
        "transcribe",
        "transcribe:transcribe",
        "Print the words spoken in audio files as they are recognised; --json adds the time of every word.",
    ),
    ("lm", "lm:app", "Build language models for beam search."),
    (
        "export",
        "export:export",
        "Write a model for other programs: ONNX, TorchScript, or plain weights in safetensors.",
    ),
    (
        "model",
        "recognise:model",
        "Print the size of a preset's model, its layers, and the memory that training it needs.",
    ),
    (
        "report",
        "report:report",
        "Write one page about runs: results, privacy, norms per layer, WER per speaker, the convergence bound.",
    ),
    (
        "demo",
        "demo:demo",
        "Show the whole story on synthetic voices: a seed model, domain shift, federated learning, noise, clipping.",
    ),
    (
        "estimate",
        "estimate:estimate",
        "Estimate a federated run: parameters, FLOPs, memory, traffic, GPU-hours. Nothing is trained.",
    ),
    ("data", "data:app", "Corpora, stores and populations."),
    ("config", "config:app", "Presets and the configuration they resolve to."),
    ("train", "train:app", "Train recognisers."),
    ("privacy", "privacy:app", "Account for privacy: epsilon, plans, claims, and what a run's ledger proves."),
    ("bench", "bench:app", "Reproduce the paper's results, in its size or in miniature."),
)

_app = typer.Typer(
    name="sotto",
    help="Federated learning with user-level differential privacy for speech recognition.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=MARKUP,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sotto {VERSION}")
        raise typer.Exit


@_app.callback()
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
    if extensions:
        from sottovoce.extensions import import_extension

        for module in extensions:
            import_extension(module)


def command_line() -> TyperGroup:
    """Return the command `sotto` with all its commands, none of which is imported yet."""
    group = typer.main.get_group(_app)
    for name, place, about in COMMANDS:
        group.add_command(LazyCommand(name, place, about))
    return group


def execute() -> int:
    """Run the command of `sys.argv` and return its exit code."""
    try:
        code = command_line()(standalone_mode=False)
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
    return code if isinstance(code, int) else 0


def _usage_error(error: typer.TyperException) -> int:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if "\n" in message.strip():  # the help of a command group, given without a command
        typer.echo(message, err=True)
    elif message:  # where typer has printed the help itself, nothing is left to say
        where, colon, reason = message.partition(": ")
        message = f"{where}{colon}{expectation(reason)}".rstrip(".") + "."
        hint = f" See `{context.command_path} --help`." if context else ""
        note(f"error: {message}{hint}")
    return error.exit_code
