"""Local rules: what a user's local step does besides following the gradient of its loss."""

from typing import Annotated

from sottovoce.federated.local_rules.base import LocalRule, LocalState
from sottovoce.federated.local_rules.fedprox import FedProx
from sottovoce.federated.local_rules.local_sgd import LocalSgd
from sottovoce.open_union import OpenUnion

__all__ = ["AnyLocalRule", "FedProx", "LocalRule", "LocalSgd", "LocalState"]

AnyLocalRule = Annotated[LocalRule, OpenUnion(LocalRule, "name")]
