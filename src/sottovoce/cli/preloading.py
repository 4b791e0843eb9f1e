"""Everything that the workers of a training need, loaded at once: the server that forks them imports this module."""

import gc
import importlib

gc.disable()  # little of it is garbage, and looking for that takes a tenth of the time
for _module in (
    "torch.distributed",
    "sottovoce.central.central_training",
    "sottovoce.federated.federated_training",
    "sottovoce.cli.training_display",
):
    importlib.import_module(_module)
gc.freeze()  # no worker looks through it again, so that its memory stays shared
gc.enable()
