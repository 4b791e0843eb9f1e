"""The options of decoding, which several commands share: one for every field of `Decoding`."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from sottovoce.cli.console import note
from sottovoce.errors import ConfigError, expectation
from sottovoce.evaluation.decoding import Decoding
from sottovoce.evaluation.language_model import USERS_NOTE, LanguageModelFile

Command = Callable[..., None]


def takes_decoding(command: Command) -> Command:
    """Replace a command's parameter `decoding` by the options of decoding; it receives them validated.

    Before the command runs, the files are looked at, and a language model with users' transcripts is said to be one.
    """

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in Decoding.model_fields}
        command(decoding=_validated(chosen), **values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    kept = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own if parameter.name != "decoding"]
    with_options.__signature__ = inspect.Signature([*kept, *_parameters()])  # type: ignore[attr-defined]
    return with_options


def _parameters() -> list[inspect.Parameter]:
    made = []
    for name, field in Decoding.model_fields.items():
        description = field.description or ""
        option = typer.Option(f"--{name.replace('_', '-')}", help=f"{description[:1].upper()}{description[1:]}.")
        annotation: Any = Annotated[field.annotation, option]
        made.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.get_default(), annotation=annotation)
        )
    return made


def _validated(chosen: dict[str, Any]) -> Decoding:
    try:
        decoding = Decoding(**chosen)
    except ValidationError as error:
        first = error.errors()[0]
        flag = str(first["loc"][0]).replace("_", "-")
        raise ConfigError(f"--{flag} {first['input']}: {expectation(first['msg'])}.") from None
    note_users(decoding.check())
    return decoding


def note_users(language_model: LanguageModelFile | None) -> None:
    """Say it where a language model was built from users' transcripts."""
    if language_model is not None and language_model.has_users_transcripts:
        note(f"{language_model.path}: {USERS_NOTE[0].lower()}{USERS_NOTE[1:]}")
