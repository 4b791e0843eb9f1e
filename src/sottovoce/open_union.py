"""Open unions: options of several kinds behind one field, told apart by a key, to which anyone may add a kind.

A pydantic union with a discriminator lists its members once and for all. An open union holds every subclass of a base
class that exists when a value is validated, so an extension only needs to define a subclass and be imported:

    class Optimizer(BaseModel):
        name: str

    AnyOptimizer = Annotated[Optimizer, OpenUnion(Optimizer, "name")]

    class Sgd(Optimizer):
        name: Literal["sgd"] = "sgd"  # the default value is the name in configurations
        momentum: float = 0.0

A field of type `AnyOptimizer` accepts an instance of any subclass of the base class as it is, and a mapping such as
{"name": "sgd", "momentum": 0.5}. It is dumped by the `model_dump` of the instance's own class. Errors inside a member
keep their precise location: no part of it names the member.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from sottovoce.errors import ConfigError


@dataclass(frozen=True)
class OpenUnion:
    """The marker of a field that holds any subclass of `base`; `default` is the kind of a mapping without the key."""

    base: type[BaseModel]
    key: str
    default: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate by `validated`; dump an instance by its own class."""
        del source, handler
        return core_schema.no_info_plain_validator_function(self.validated)

    def members(self) -> dict[str, type[BaseModel]]:
        """Return all kinds that are defined now, sorted by name.

        A subclass without a name of its own (abstract, or with the name of its parent) is no member. A class that is
        defined again, as in a notebook, replaces the earlier definition.
        """
        members: dict[str, type[BaseModel]] = {}
        for name, member in self._named(self.base, None):
            other = members.get(name, member)
            if _path(other) != _path(member):
                raise ConfigError(f"{_path(other)} and {_path(member)} both have {self.key}={name!r}. Rename one.")
            members[name] = member
        return dict(sorted(members.items()))

    def member(self, given: Any) -> type[BaseModel] | None:
        """Return the kind that a mapping from a configuration asks for; None where it asks for none that exists."""
        name = given.get(self.key, self.default) if isinstance(given, Mapping) else self.default
        return self.members().get(name) if isinstance(name, str) else None

    def validated(self, value: Any) -> BaseModel:
        """Return an instance as it is, and a mapping as an instance of the kind that its key names."""
        if isinstance(value, self.base):
            name = getattr(value, self.key, None)
            if self.members().get(str(name)) is not type(value):
                problem = f"{type(value).__name__} needs a {self.key} of its own, such as {self.key}: Literal['mine']"
                raise self._error((), value, problem)
            return value
        if not isinstance(value, Mapping):
            raise self._error((), value, f"Expected a mapping with {self.key}: {self._choices()}")
        member = self.member(value)
        if member is not None:
            return member.model_validate(value)
        if self.key in value:
            problem = f"Expected {self._choices()}; for a kind of your own, import the module that defines it first"
            raise self._error((self.key,), value[self.key], problem)
        raise self._error((), value, f"Expected {self.key}: {self._choices()}")

    def _named(self, parent: type[BaseModel], inherited: str | None) -> Iterator[tuple[str, type[BaseModel]]]:
        for child in parent.__subclasses__():
            field = child.model_fields.get(self.key)
            name = field.default if field is not None and isinstance(field.default, str) else None
            if name is not None and name != inherited:
                yield name, child
            yield from self._named(child, name)

    def _choices(self) -> str:
        *others, last = self.members() or ("nothing, because no kind is defined",)
        return f"{', '.join(others)} or {last}" if others else last

    def _error(self, place: tuple[str, ...], value: Any, message: str) -> ValidationError:
        kind = PydanticCustomError("open_union", "{message}", {"message": message})
        return ValidationError.from_exception_data("open union", [InitErrorDetails(type=kind, loc=place, input=value)])


def _path(member: type[BaseModel]) -> str:
    return f"{member.__module__}.{member.__qualname__}"
