"""The role of a parameter tensor: which block, kind and groups it belongs to.

Roles are the names by which the rest of the system speaks about parameters: clipping by `block` or `kind`, noise and
clip weights for a group such as `mlp`, and the parameters that train. An encoder declares them; no other code reads
meaning out of a tensor's name.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sottovoce.errors import ConfigError

REST = "rest"  # the kind of every tensor outside the blocks
ADAPTERS = "adapters"  # the group of the tensors of low-rank adapters

# The parameters that train: all of them, or those whose role has one of these names.
Trainable = Literal["all"] | tuple[str, ...]


@dataclass(frozen=True)
class TensorRole:
    """What a tensor is: its block (blocks.3), its part of the block (w1), further groups (mlp)."""

    block: str
    kind: str = REST
    groups: frozenset[str] = frozenset()
    least_norm: float = 0.0  # what trust ratios take its norm for, at least

    @property
    def names(self) -> frozenset[str]:
        """Every name that the tensor answers to."""
        return self.groups | {self.block, self.kind}


def role_by_name(tensor: str, groups: Mapping[str, Collection[str]]) -> TensorRole:
    """Return the role that a tensor's name suggests; `groups` maps a group to the names of its modules.

    Inside a list of modules, the block is the name up to the number and the kind is the next part of the name:
    blocks.3.w1.weight is the kind w1 of the block blocks.3. Outside such lists, the block is the first part of the
    name, and the kind is `rest`.
    """
    parts = tensor.split(".")
    members = frozenset(group for group, modules in groups.items() if not set(parts).isdisjoint(modules))
    for place, part in enumerate(parts):
        if place > 0 and part.isdigit():
            kind = parts[place + 1] if place + 1 < len(parts) else REST
            return TensorRole(".".join(parts[: place + 1]), kind, members)
    return TensorRole(parts[0], REST, members)


def having(name: str, roles: Iterable[TensorRole]) -> tuple[bool, ...]:
    """Return which roles have a name; raise ConfigError where none has."""
    roles = tuple(roles)
    chosen = tuple(name in role.names for role in roles)
    if not any(chosen):
        raise ConfigError(f"No parameters are called {name!r}. Choose among: {listed(roles)}.")
    return chosen


def listed(roles: Iterable[TensorRole]) -> str:
    """Return all names of some roles in one line; numbered blocks as a range."""
    names = {name: None for role in roles for name in (role.block, role.kind, *sorted(role.groups))}
    texts: dict[str, str] = {}
    for name in names:
        stem = re.sub(r"\.\d+$", "", name)
        first = texts.get(stem, name).partition(" to ")[0]
        texts[stem] = name if name in (stem, first) else f"{first} to {name}"
    return ", ".join(texts.values())


def selected(trainable: Trainable, roles: Mapping[str, TensorRole]) -> frozenset[str]:
    """Return the names of the tensors that train; raise ConfigError for an unknown name or an empty selection.

    Tensors of adapters train whatever is selected, and with them nothing else needs to.
    """
    if trainable == "all":
        return frozenset(roles)
    adapters = frozenset(name for name, role in roles.items() if ADAPTERS in role.groups)
    if not trainable and not adapters:
        raise ConfigError(f"federated.trainable selects no parameters. Choose among: all, {listed(roles.values())}.")
    chosen = [having(name, roles.values()) for name in trainable]
    return adapters | {name for name, *flags in zip(roles, *chosen, strict=True) if any(flags)}
