"""Commands that are imported when they are used, so that `sotto --help` and `sotto --version` stay fast."""

import importlib
from typing import Any, Final

import typer.main
from typer.core import TyperCommand

from sottovoce.cli.bounded_numbers import bound_numbers
from sottovoce.cli.help_texts import make_plain

MARKUP: Final = "markdown"  # of all help texts; it joins the lines of a paragraph


class LazyCommand(TyperCommand):
    """A command, or a group of commands, that is imported when it is used.

    Until then only its name and the text for the list of commands are known. `place` is module:name below
    `sottovoce.cli`: a function, which is a command, or a `typer.Typer`, which is a group. A group takes its help from
    here.
    """

    def __init__(self, name: str, place: str, about: str, panel: str | None = None) -> None:
        """Note where the command is, and the panel of the list of commands that shows it."""
        super().__init__(name, help=about, rich_markup_mode=MARKUP, rich_help_panel=panel)
        self._name, self._place = name, place

    def load(self) -> Any:
        """Import the command and return it as typer made it."""
        module, _, attribute = self._place.partition(":")
        target = getattr(importlib.import_module(f"sottovoce.cli.{module}"), attribute)
        parent = typer.Typer(rich_markup_mode=MARKUP)
        if isinstance(target, typer.Typer):
            parent.add_typer(target, name=self._name, help=self.help)
        else:
            parent.command(self._name)(target)
        command = bound_numbers(typer.main.get_group(parent).commands[self._name])
        make_plain(command)
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Load the command and let it parse the words after its name; the context leads to the loaded command."""
        return self.load().make_context(*arguments, **options)
