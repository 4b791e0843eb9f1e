"""How the help shows options and arguments: in words that people know, not in Python's types.

A flag takes no value and shows none. Numbers, texts and paths show one word; a choice shows what there is to choose;
whatever may be repeated ends in three dots. typer itself shows `FLOAT RANGE`, `[en|fr]` and `STORE TEXT`.
"""

from typing import Any, Final

from typer import Context
from typer.core import TyperArgument, TyperOption

_WORDS: Final = {
    "text": "TEXT",
    "integer": "INTEGER",
    "integer range": "INTEGER",
    "float": "NUMBER",
    "float range": "NUMBER",
    "path": "PATH",
}
NO_VALUE: Final = "BOOLEAN"  # typer shows nothing in its place

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

    def make_metavar(self, ctx: Any = None) -> str:
        """Return the word for the value; for a flag the one that typer leaves out."""
        if self.is_flag or self.count:
            return NO_VALUE
        choice = self.type.get_metavar(self, ctx)
        word = self.metavar or (choice.strip("[]") if choice else _WORDS.get(self.type.name, self.type.name))
        return f"{word}..." if self.multiple else word


class PlainArgument(TyperArgument):
    """An argument whose name says what it is."""

    def make_metavar(self, ctx: Any = None) -> str:  # noqa: ARG002 - typer's signature
        """Return nothing: no type beside the name."""
        return ""

    def get_error_hint(self, ctx: Any) -> str:  # noqa: ARG002 - click's signature
        """Return the name for errors."""
        return f"'{self.human_readable_name}'"

    def get_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the name as in any other manual: STORE, [PRESET], FILE..."""
        name = self.human_readable_name
        dots = "..." if self.nargs != 1 and not name.endswith("...") else ""
        return [f"{name}{dots}" if self.required else f"[{name}{dots}]"]


def make_plain(command: Any) -> None:
    """Let a command and all commands below it, as typer made them, show their options and arguments in plain words."""
    for parameter in command.get_params(Context(command)):  # the help option, too
        if isinstance(parameter, TyperOption):
            parameter.__class__ = PlainOption
        elif isinstance(parameter, TyperArgument):
            parameter.__class__ = PlainArgument
            parameter.opts = [parameter.human_readable_name]  # what the help shows
    commands = getattr(command, "commands", {})
    for below in commands.values():
        make_plain(below)
    for name in ORDER.get(command.name, ()):
        if name in commands:  # one that is not loaded yet has none
            commands[name] = commands.pop(name)
