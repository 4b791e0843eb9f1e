"""Open unions: options of several kinds behind one field, told apart by a key, to which anyone may add a kind.

A pydantic union with a discriminator lists its members once and for all. An open union holds every subclass of a base
class that exists when a value is validated, so an extension only needs to define a subclass and be imported:

    class Optimizer(BaseModel):
        name: str

    AnyOptimizer = Annotated[Optimizer, OpenUnion(Optimizer, "name", label="optimizer")]

    class Sgd(Optimizer):
        name: Literal["sgd"] = "sgd"  # the default value is the name in configurations
        momentum: float = 0.0

A field of type `AnyOptimizer` accepts an instance of any subclass of the base class as it is, and a mapping such as
{"name": "sgd", "momentum": 0.5}. It is dumped by the `model_dump` of the instance's own class. Errors inside a member
keep their precise location: no part of it names the member.

A name that no imported module defines is looked for in the extensions of installed packages (`extensions.py`).
"""

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from sottovoce.errors import ConfigError
from sottovoce.extensions import import_installed, imported_extensions

_UNKNOWN = "unknown_kind"
_IMPORT = "import the module that defines it (sotto --import MODULE ...)"
_SCRIPTS = ("__main__", "__mp_main__")  # the script of this process, under its own name and under that of a worker

_unions: list["OpenUnion"] = []


@dataclass(frozen=True)
class OpenUnion:
    """The marker of a field that holds any subclass of `base`; `default` is the kind of a mapping without the key."""

    base: type[BaseModel]
    key: str
    default: str | None = None
    label: str = field(default="kind", kw_only=True)  # what a kind is called in messages: an optimizer, noise

    def __post_init__(self) -> None:
        """Note the union, so that workers can be told which modules define kinds."""
        _unions.append(self)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate by `validated`; dump an instance by its own class."""
        del source, handler
        return core_schema.no_info_plain_validator_function(self.validated)

    def members(self) -> dict[str, type[BaseModel]]:
        """Return all kinds that are defined now, sorted by name.

        A subclass without a name of its own (abstract, or with the name of its parent) is no member. A class that is
        defined again, as in a notebook, replaces the earlier definition. A name that two different classes have is left
        out; asking for it by `member` is an error.
        """
        definitions = sorted(self._definitions().items())
        return {name: classes[-1] for name, classes in definitions if len(classes) == 1}

    def member(self, given: Any) -> type[BaseModel] | None:
        """Return the kind that a mapping from a configuration asks for; None where it asks for none that exists.

        Raise ConfigError where several classes have that name.
        """
        name = given.get(self.key, self.default) if isinstance(given, Mapping) else self.default
        return self._named(name) if isinstance(name, str) else None

    def validated(self, value: Any) -> BaseModel:
        """Return an instance as it is, and a mapping as an instance of the kind that its key names."""
        if isinstance(value, self.base):
            name, own = getattr(value, self.key, None), type(value)
            member = self._named(name) if isinstance(name, str) else None
            if member is None or _source(member) != _source(own):
                problem = f"{own.__name__} needs a {self.key} of its own, such as {self.key}: Literal['mine']"
                raise self._error((), value, problem)
            return value
        if not isinstance(value, Mapping):
            raise self._error((), value, f"Expected a mapping with {self.key}: {self.choices}")
        member = self.member(value)
        if member is not None:
            return member.model_validate(value)
        if self.key in value:
            problem = f"Expected {self.choices}; for a kind of your own, {_IMPORT}"
            raise self._error((self.key,), value[self.key], problem, _UNKNOWN)
        raise self._error((), value, f"Expected {self.key}: {self.choices}")

    def missing(self, name: object) -> str:
        """Return the message about a kind that is not known here."""
        return _missing(self.label, name)

    def _named(self, name: str) -> type[BaseModel] | None:
        """Return the class with a name; raise ConfigError where several classes have it."""
        if name not in self._definitions():
            import_installed()
        classes = self._definitions().get(name, [])
        if len(classes) > 1:
            first, second = classes[:2]
            raise ConfigError(f"{_path(first)} and {_path(second)} both have {self.key}={name!r}. Rename one.")
        return classes[0] if classes else None

    def _definitions(self) -> dict[str, list[type[BaseModel]]]:
        """Return the classes by name; of several definitions of one class, only the last."""
        definitions: dict[str, dict[tuple[str, str], type[BaseModel]]] = {}
        for name, member in self._subclasses(self.base, None):
            definitions.setdefault(name, {})[_source(member)] = member
        return {name: list(classes.values()) for name, classes in definitions.items()}

    def _subclasses(self, parent: type[BaseModel], inherited: str | None) -> Iterator[tuple[str, type[BaseModel]]]:
        for child in parent.__subclasses__():
            field = child.model_fields.get(self.key)
            name = field.default if field is not None and isinstance(field.default, str) else None
            if name is not None and name != inherited:
                yield name, child
            yield from self._subclasses(child, name)

    @property
    def choices(self) -> str:
        """The names of all kinds, in words."""
        *others, last = self.members() or ("nothing, because no kind is defined",)
        return f"{', '.join(others)} or {last}" if others else last

    def _error(self, place: tuple[str, ...], value: Any, message: str, kind: str = "open_union") -> ValidationError:
        error = PydanticCustomError(kind, "{message}", {"message": message, "label": self.label})
        return ValidationError.from_exception_data("open union", [InitErrorDetails(type=error, loc=place, input=value)])


def unknown_kind(error: ValidationError) -> str | None:
    """Return the message about the first kind in a stored document that is not known here; None without one."""
    for detail in error.errors():
        if detail["type"] == _UNKNOWN:
            return _missing(detail["ctx"]["label"], detail["input"])
    return None


def kind_modules() -> tuple[str, ...]:
    """Return the modules that another process imports to know the kinds that this process knows.

    The script itself is not among them: a worker process runs it anyway.
    """
    modules = dict.fromkeys(imported_extensions())
    for union in _unions:
        for _, member in union._subclasses(union.base, None):
            package = member.__module__.partition(".")[0]
            if package != "sottovoce" and package not in _SCRIPTS:
                modules.setdefault(member.__module__)
    return tuple(modules)


def import_kinds(modules: Iterable[str]) -> None:
    """Import the modules of another process' `kind_modules`; a module that has no importable name is left out."""
    for name in modules:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)


def _missing(label: str, name: object) -> str:
    return f"{label} {name!r} is not known here: {_IMPORT}"


def _path(member: type[BaseModel]) -> str:
    return f"{member.__module__}.{member.__qualname__}"


def _source(member: type[BaseModel]) -> tuple[str, str]:
    """Return the file and the name of a class: a script and the same file as a module define the same class."""
    file = getattr(sys.modules.get(member.__module__), "__file__", None)
    return str(Path(file).resolve()) if file else member.__module__, member.__qualname__
