"""Plain local SGD: the gradient stays unchanged."""

from typing import Literal

from sottovoce.federated.local_rules.base import LocalRule


class LocalSgd(LocalRule):
    """The gradient of the loss, unchanged."""

    name: Literal["sgd"] = "sgd"
