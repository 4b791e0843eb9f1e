"""Optimizers on flat vectors, for central training and for the server and the users of federated learning."""

from typing import Annotated

from sottovoce.open_union import OpenUnion
from sottovoce.optim.adagrad import AdaGrad
from sottovoce.optim.adam import Adam
from sottovoce.optim.averaging import Averaging
from sottovoce.optim.base import Optimizer, State
from sottovoce.optim.lamb import Lamb
from sottovoce.optim.lars import Lars
from sottovoce.optim.schedule import Schedule
from sottovoce.optim.sgd import Sgd

__all__ = ["AdaGrad", "Adam", "AnyOptimizer", "Averaging", "Lamb", "Lars", "Optimizer", "Schedule", "Sgd", "State"]

AnyOptimizer = Annotated[Optimizer, OpenUnion(Optimizer, "name", label="optimizer")]
