"""The command line: all commands, and the options before them. An error that a user can cause is one line."""

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import click
import typer.main
from typer.core import TyperGroup

from sottovoce.cli.console import note, safe, stderr
from sottovoce.cli.help_texts import make_plain
from sottovoce.cli.lazy_command import MARKUP, LazyCommand
from sottovoce.errors import ConfigError, SottoError, expectation, nearest, out_of_memory, with_full_stop
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
        "import",
        "importing:import_seed",
        "Make a seed model from tensors that another program has saved, and list what did not fit.",
    ),
    (
        "report",
        "report:report",
        "Write one page about runs: results, privacy, norms per layer, WER per speaker, the convergence bound.",
    ),
    (
        "watch",
        "watch:watch",
        "Show how far a training is, until it ends: step, loss, WER on dev, epsilon, pace and time left.",
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
    ("data", "data:app", "Turn corpora into stores; split, merge, count and inspect their speakers."),
    ("config", "config:app", "Show the presets, and every setting that a preset resolves to."),
    ("train", "train:app", "Train a recogniser: on all data together, or on users who keep their audio."),
    ("privacy", "privacy:app", "Account for privacy: epsilon, plans, claims, and what a run's ledger proves."),
    ("deploy", "deploy:app", "Train on real clients over a network: certificates, enrolment, server, client, status."),
    ("bench", "bench:app", "Reproduce the paper's results, in its size or in miniature."),
)

# The first screen: what one wants to do, and the commands for it, in this order. A command that is in no panel comes
# first, under "Commands".
PANELS = {
    "Try it": ("demo",),
    "Get data": ("data",),
    "Train": ("config", "model", "import", "estimate", "train", "deploy", "watch"),
    "Use a model and look at results": ("eval", "transcribe", "lm", "export", "report"),
    "Privacy": ("privacy",),
    "Reproduce the paper": ("bench",),
}

_app = typer.Typer(
    name="sotto",
    help="Federated learning with user-level differential privacy for speech recognition.",
    no_args_is_help=True,
    epilog="`sotto COMMAND --help` says more, with an example. `sotto --install-completion` lets Tab complete them.",
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
        typer.Option(
            "--import", metavar="MODULE", help="Import an extension: a module or a .py file. Repeat for several."
        ),
    ] = None,
) -> None:
    """Accept the options that come before a command."""
    if extensions:
        from sottovoce.extensions import import_extension

        for module in extensions:
            import_extension(module)


def command_line() -> TyperGroup:
    """Return the command `sotto` with all its commands, none of which is imported yet."""
    group = typer.main.get_command(_app)
    if not isinstance(group, TyperGroup):
        raise TypeError("a Typer with a callback is a group")
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    order = {name: place for place, name in enumerate(panels)}
    for name, place, about in sorted(COMMANDS, key=lambda command: order.get(command[0], -1)):
        group.add_command(LazyCommand(name, place, about, panels.get(name)))
    make_plain(group)
    return group


def execute() -> int:
    """Run the command of `sys.argv` and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8, and terminals neither
    try:
        _require_text(sys.argv[1:])
        code = command_line()(standalone_mode=False)
    except SottoError as error:
        note(f"error: {error}")
        code = error.exit_code
    except click.ClickException as error:
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
    except (MemoryError, ImportError, RuntimeError) as error:
        if (known := out_of_memory(error)) is None:
            raise
        note(f"error: {known}")
        code = 1
    stderr.show_cursor(True)  # a worker that was ended at once could not do it; without a terminal, nothing happens
    return code if isinstance(code, int) else 0


def _require_text(arguments: Sequence[str]) -> None:
    """Raise ConfigError where an argument is not UTF-8: it could not be written into any of our files."""
    for argument in arguments:
        try:
            os.fspath(argument).encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{argument!r} is not UTF-8. Rename the file, or give another value.") from None


def _usage_error(error: click.ClickException) -> int:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if "\n" in message.strip():  # the help of a command group, given without a command
        typer.echo(safe(message), err=True)
    elif message:  # where typer has printed the help itself, nothing is left to say
        wrong, resembling = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
        if resembling:  # of an unknown option
            message = f"{error.message}.{nearest(wrong, resembling)}"
        where, colon, reason = message.partition(": ")
        message = with_full_stop(f"{where}{colon}{expectation(reason)}")
        hint = f" See `{context.command_path} --help`." if context else ""
        note(f"error: {message}{hint}")
    return error.exit_code
