"""The help of all commands, suggestions after a typo, and completion by the shell."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context

from sottovoce.cli.command_line import COMMANDS, PANELS, command_line
from sottovoce.cli.corpus_options import _capitalised
from sottovoce.cli.help_texts import NO_VALUE, ORDER
from sottovoce.errors import expectation, with_full_stop

# Asks typer for its completion of bash, and prints what Tab would offer for some words.
TAB = """
eval "$(_SOTTO_COMPLETE=source_bash sotto)"
tab() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _sotto_completion sotto; echo "${COMPREPLY[*]}"; }
tab sotto tr
tab sotto config show tin
"""
PROGRAM = f"#!{sys.executable}\nfrom sottovoce.cli.main import run\nrun()\n"


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command with its words, the groups too."""
    command = command_line() if command is None else command
    loaded = command.load() if hasattr(command, "load") else command
    yield " ".join(path), loaded
    for name, below in getattr(loaded, "commands", {}).items():
        yield from commands(below, (*path, name))


@pytest.fixture(scope="module")
def every() -> dict[str, Any]:
    return dict(commands())


def test_no_help_shows_a_type_of_python(every):
    for words, command in every.items():
        context = Context(command, info_name="sotto")
        shown = [parameter.make_metavar(context) for parameter in command.get_params(context)]
        text = " ".join([*(word for word in shown if word), command.get_usage(context)])
        assert not [sign for sign in "<>{}" if sign in text], (words, text)
        assert "list[" not in text, words


def test_flags_take_no_value_and_others_name_theirs(every):
    context = Context(every["train federated"])
    shown = {option.opts[0]: option.make_metavar(context) for option in every["train federated"].get_params(context)}
    assert shown["--json"] == shown["--help"] == NO_VALUE == shown["--wandb-private"]
    assert (shown["--run"], shown["--set"], shown["--workers"]) == ("PATH", "KEY=VALUE...", "INTEGER")


def test_every_help_is_a_sentence_that_begins_with_no_mangled_value(every):
    for words, command in every.items():
        assert command.help, words
        for parameter in command.get_params(Context(command)):
            text = parameter.help or ""
            assert text.rstrip().endswith((".", "?")), (words, parameter.name, text)
            assert not text.startswith(("En,", "Ls-", "Everyday:")), (words, text)
            first = text.split()[0].strip(",.:")
            assert first.lower() != str(parameter.default) or first == parameter.default, (words, text)


def test_the_word_for_a_value_fits_into_a_narrow_terminal(every):
    for words, command in every.items():
        for parameter in command.get_params(Context(command)):
            shown = parameter.make_metavar(Context(command)) or ""
            assert len(shown) <= 28, (words, parameter.name, shown)  # longer ones break in the middle of a word


def test_groups_show_their_commands_in_the_order_of_use(every):
    for group, order in ORDER.items():
        assert tuple(every[group].commands) == order


def test_a_value_at_the_beginning_keeps_its_spelling():
    assert _capitalised("ls-100 or ls-360") == "ls-100 or ls-360"
    assert _capitalised("en, fr or de") == "en, fr or de"
    assert _capitalised("the language") == "The language"


def test_the_first_screen_has_every_command_in_one_panel():
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted(name for name, *_ in COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'? See `sotto --help`."),
        (["data", "stat"], "No such command 'stat'. Did you mean 'stats'? See"),
        (["config", "show", "--jsn", "tiny"], "No such option: --jsn. Did you mean '--json'? See"),
        (["config", "show", "tyni"], "Did you mean 'tiny'?"),
        (["config", "show", "tiny", "--set", "federated.local.stps=1"], "Did you mean 'federated.local.steps'?"),
    ],
)
def test_a_typo_gets_a_suggestion(sotto, words, message):
    assert message in sotto(*words).error


def test_messages_of_libraries_are_put_into_our_words():
    assert expectation("Value error, Expected least=5 <= most=2") == "expected least=5 <= most=2"
    assert with_full_stop("It failed..") == with_full_stop("It failed") == "It failed."
    assert with_full_stop("Did you mean 'train'?") == "Did you mean 'train'?"


@pytest.fixture
def program(tmp_path):
    """Return an environment in which `sotto` is this Python's."""
    path = tmp_path / "sotto"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not there")
def test_tab_completes_commands_and_presets_in_bash(program):
    ran = subprocess.run(["bash", "-c", TAB], capture_output=True, text=True, check=False, timeout=300, env=program)
    assert ran.stdout.splitlines() == ["train transcribe", "tiny tiny-conformer"], ran.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_options(shell, program):
    asked = {"_SOTTO_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "sotto train federated --wor"}
    asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    ran = subprocess.run(["sotto"], capture_output=True, text=True, check=False, timeout=60, env=program | asked)
    assert "--workers" in ran.stdout, ran.stderr
