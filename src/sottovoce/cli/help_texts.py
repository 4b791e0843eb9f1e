"""How the help shows options and arguments: in words that people know, not in Python's types.

A flag takes no value and shows none. Numbers, texts and paths show one word; a choice shows what there is to choose;
whatever may be repeated ends in three dots. typer itself shows `<bool>`, `<list[Path]>` and `{STORE}`.
"""

from typing import Any, Final

from typer import Context
from typer.core import TyperArgument, TyperOption

_WORDS: Final = {
    "str": "TEXT",
    "int": "INTEGER",
    "int range": "INTEGER",
    "float": "NUMBER",
    "float range": "NUMBER",
    "path": "PATH",
    "Path": "PATH",
}

# The commands of a group, in the order in which one needs them; typer shows groups of commands last.
ORDER: Final = {
    "data": ("prepare", "check", "stats", "inspect", "split", "merge", "export", "upgrade"),
    "privacy": (
        *("plan", "epsilon", "verify", "explain", "population", "claim", "compose", "publish"),
        *("audit", "neighbours", "table"),
    ),
}


class PlainOption(TyperOption):
    """An option whose help names its value in one word."""

    def display_type_rich(self, ctx: Any) -> str | None:
        """Return the word for the value; None for a flag."""
        if self.is_flag or self.count:
            return None
        word = self.metavar or _word(self.display_type(ctx))
        return f"{word}..." if self.multiple else word


class PlainArgument(TyperArgument):
    """An argument whose name says what it is."""

    def display_type_rich(self, ctx: Any) -> str | None:  # noqa: ARG002 - typer's signature
        """Return None: no type beside the name."""
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the name as in any other manual: STORE, [PRESET], FILE..."""
        name = self.display_name_raw
        dots = "..." if self.nargs != 1 and not name.endswith("...") else ""
        return [f"{name}{dots}" if self.required else f"[{name}{dots}]"]


def make_plain(command: Any) -> None:
    """Let a command and all commands below it, as typer made them, show their options and arguments in plain words."""
    for parameter in command.get_params(Context(command)):  # the help option, too
        if isinstance(parameter, TyperOption):
            parameter.__class__ = PlainOption
        elif isinstance(parameter, TyperArgument):
            parameter.__class__ = PlainArgument
    commands = getattr(command, "commands", {})
    for below in commands.values():
        make_plain(below)
    for name in ORDER.get(command.name, ()):
        if name in commands:  # one that is not loaded yet has none
            commands[name] = commands.pop(name)


def _word(shown: str) -> str:
    """Return the word for a type as typer shows it, such as <int range>; a choice without its brackets."""
    name = shown.removeprefix("<").removesuffix(">")
    name = name.removeprefix("list[").removesuffix("]")
    return _WORDS.get(name, name)
