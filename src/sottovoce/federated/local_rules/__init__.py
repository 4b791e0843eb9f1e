"""Local rules: changes to the gradient of a user's local step, such as FedProx."""

from typing import Annotated

from sottovoce.federated.local_rules.base import LocalRule, LocalState
from sottovoce.federated.local_rules.fedprox import FedProx
from sottovoce.federated.local_rules.local_sgd import LocalSgd
from sottovoce.open_union import OpenUnion

__all__ = ["AnyLocalRule", "FedProx", "LocalRule", "LocalSgd", "LocalState"]

AnyLocalRule = Annotated[LocalRule, OpenUnion(LocalRule, "name", label="local rule")]
