"""Federated training: users, aggregators, the engine and the run. Names are loaded on first use."""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.federated.aggregator import Aggregator, AggregatorContext, Collected, MakeAggregator
    from sottovoce.federated.client import Client
    from sottovoce.federated.diagnostics import Figures
    from sottovoce.federated.engine import Engine
    from sottovoce.federated.federated_options import Federated, Local
    from sottovoce.federated.federated_training import train_federated
    from sottovoce.federated.local_rules import AnyLocalRule, FedProx, LocalRule, LocalSgd, LocalState
    from sottovoce.federated.process_aggregator import ProcessAggregator
    from sottovoce.federated.step import central_step

__all__ = [
    "Aggregator",
    "AggregatorContext",
    "AnyLocalRule",
    "Client",
    "Collected",
    "Engine",
    "FedProx",
    "Federated",
    "Figures",
    "Local",
    "LocalRule",
    "LocalSgd",
    "LocalState",
    "MakeAggregator",
    "ProcessAggregator",
    "central_step",
    "train_federated",
]

__getattr__ = lazy_names(
    __name__,
    {
        "aggregator": "Aggregator AggregatorContext Collected MakeAggregator",
        "client": "Client",
        "diagnostics": "Figures",
        "engine": "Engine",
        "federated_options": "Federated Local",
        "federated_training": "train_federated",
        "local_rules": "AnyLocalRule FedProx LocalRule LocalSgd LocalState",
        "process_aggregator": "ProcessAggregator",
        "step": "central_step",
    },
)
