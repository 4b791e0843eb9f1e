"""Command-line options made from the fields of a corpus spec.

An option takes its name, type, default and help text from its field, so each of them is written only once.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, TypeVar, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sottovoce.data.corpora.spec import CorpusSpec
from sottovoce.errors import ConfigError, expectation, with_full_stop

Spec = TypeVar("Spec", bound=CorpusSpec)
Command = Callable[..., None]


def takes_corpus(spec: type[CorpusSpec], *, arguments: Collection[str] = ()) -> Callable[[Command], Command]:
    """Replace a command's parameter `corpus` by one option for every field of the spec.

    The command receives the validated spec as `corpus`. Fields named in `arguments` become positional arguments. A
    field with several values becomes an option that can be repeated, named in the singular.
    """
    fields = {name: field for name, field in spec.model_fields.items() if name != "kind"}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            chosen = {name: values.pop(name) for name in fields}
            command(corpus=_validated(spec, chosen), **values)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "corpus":
                parameters += [_parameter(name, field, name in arguments) for name, field in fields.items()]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


def _parameter(name: str, field: FieldInfo, positional: bool) -> inspect.Parameter:
    """Return the command's parameter for a field."""
    description, kind = field.description or "", field.annotation
    text = with_full_stop(_capitalised(description))
    default = inspect.Parameter.empty if field.is_required() else field.get_default()
    if _has_several_values(field):
        text, kind = f"{text} Repeat for several.", list[str]
        default = default if field.is_required() else list(field.get_default())
    elif get_origin(kind) is Literal:
        kind = str  # the spec checks the value itself and gives an error of one line
    info = (
        typer.Argument(metavar=name.upper(), help=text) if positional else typer.Option(_flag(name, field), help=text)
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _capitalised(description: str) -> str:
    """Return a description that begins with a capital, unless its first word is a value: "everyday: ..."."""
    first, _, _ = description.partition(" ")
    return f"{description[:1].upper()}{description[1:]}" if first.isalpha() else description


def _flag(name: str, field: FieldInfo) -> str:
    singular = name.removesuffix("s") if _has_several_values(field) else name
    return f"--{singular.replace('_', '-')}"


def _has_several_values(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _validated(spec: type[Spec], values: dict[str, Any]) -> Spec:
    """Return the spec; the first invalid value is a ConfigError of one line."""
    try:
        return spec(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        flag = _flag(name, spec.model_fields[name])
        message = f"{flag} {first['input']!r} is not valid: {expectation(first['msg'])}"
        raise ConfigError(with_full_stop(message)) from None
