"""Central training: one model on all data together, as a seed model or as the bound for federated learning.

    options     Central: optimizer, schedule, batches
    training    `train_central` runs one process' part; `sottovoce.train_central` starts the processes
    steps       `steps_from` orders the batches; `deal` shares them out; `Preparing` reads them, ahead of time on a GPU;
                `step_gradient` computes the gradient of one step

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from sottovoce.lazy_names import lazy_names

if TYPE_CHECKING:
    from sottovoce.central.batches import epoch_of_steps, steps_from
    from sottovoce.central.central_options import Central
    from sottovoce.central.central_step import Preparing, step_gradient
    from sottovoce.central.central_training import StepFigures, train_central
    from sottovoce.central.dealing import deal

__all__ = [
    "Central",
    "Preparing",
    "StepFigures",
    "deal",
    "epoch_of_steps",
    "step_gradient",
    "steps_from",
    "train_central",
]

__getattr__ = lazy_names(
    __name__,
    {
        "batches": "epoch_of_steps steps_from",
        "central_options": "Central",
        "central_training": "StepFigures train_central",
        "central_step": "Preparing step_gradient",
        "dealing": "deal",
    },
)
