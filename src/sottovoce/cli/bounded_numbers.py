"""Bounds on the numbers of every command, in one place (see `limits`), whatever bounds an option has of its own."""

from collections.abc import Callable
from typing import Any

import typer

from sottovoce.limits import number_fault


def bound_numbers(command: Any) -> Any:
    """Return a command, or a group with all its commands, whose numbers are finite and of a sane size."""
    for parameter in command.params:
        parameter.process_value = _checked(parameter, parameter.process_value)
    for inner in getattr(command, "commands", {}).values():
        bound_numbers(inner)
    return command


def _checked(parameter: Any, process: Callable[..., Any]) -> Callable[..., Any]:
    def process_and_check(context: Any, value: Any) -> Any:
        number = process(context, value)
        fault = number_fault(number) if isinstance(number, int | float) else None
        if fault is not None:
            raise typer.BadParameter(f"expected {fault}", ctx=context, param=parameter)
        return number

    return process_and_check
