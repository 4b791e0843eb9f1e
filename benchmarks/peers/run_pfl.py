"""The item under Apple's pfl, with its simulated backend: python run_pfl.py FOLDER OUT, or the same under torchrun.

Settings as its documentation advises for speed: one thread per process, users sorted by their amount of data, no local
metrics. pfl clips whole updates (it has no clipping by layer), adds Gaussian noise centrally, and steps with Adam.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from items import CLIP_NORM, GRADIENT_CLIP, LOCAL_LR, NOISE, Item
from measuring import Measured, Stopwatch
from network import make_network
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from speech import Speech


class User(Dataset):
    """One user's local batches; `iter` pads each of them when it is asked for it."""

    def __init__(self, speech: Speech, name: str, batches: list[list[int]]) -> None:
        """Keep the utterances of each batch."""
        super().__init__(raw_data=[np.zeros(len(batches))], user_id=name)
        self._speech, self._batches = speech, batches

    def iter(self, _batch_size: int | None) -> Iterator[Any]:
        """Yield the batches, ready for the network."""
        return map(self._speech.padded, self._batches)


class Watch(TrainingProcessCallback):
    """Notes when central steps end."""

    def __init__(self, watch: Stopwatch) -> None:
        """Keep the stopwatch."""
        self._watch = watch

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        """Note the end of a step; go on."""
        self._watch.step_ended()
        return False, Metrics()


def timed(network: torch.nn.Module, measured: Measured) -> Callable[..., torch.Tensor]:
    """Let the network's loss and every backward pass add to the figures."""
    loss, backward = network.loss, torch.Tensor.backward

    def timed_loss(*batch: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        result = loss(*batch)
        measured.learning += time.perf_counter() - began
        measured.frames += int(batch[1][: len(batch[3])].sum())
        return result

    def timed_backward(tensor: torch.Tensor, *rest: Any, **options: Any) -> None:
        began = time.perf_counter()
        backward(tensor, *rest, **options)
        measured.learning += time.perf_counter() - began

    torch.Tensor.backward = timed_backward
    return timed_loss


def main() -> None:
    """Take the steps of an item."""
    torch.set_num_threads(1)
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    item, speech = Item.read(folder), Speech(folder)
    network = make_network(item, speech.tokens)
    measured = Measured(parameters=sum(parameter.numel() for parameter in network.parameters()))
    network.loss = timed(network, measured)
    network.metrics = lambda *_, **__: {"unused": Weighted(0, 1)}
    places = [(t, place) for t, cohort in enumerate(speech.schedule) for place in range(len(cohort))]
    ids = itertools.count()
    batches = {number: speech.schedule[t][place] for number, (t, place) in enumerate(places)}
    frames = np.diff(speech.starts)
    weights = {
        number: int(sum(frames[place] for batch in own for place in batch)) for number, (_, own) in batches.items()
    }
    several = pytorch_ops.distributed.world_size > 1
    users = FederatedDataset(
        lambda number: User(speech, *batches[number]),
        lambda: next(ids) % len(places),
        user_id_to_weight=weights if several else None,
    )
    leads = int(os.environ.get("RANK", "0")) == 0
    watch = Stopwatch(measured, leads=leads, meet=torch.distributed.barrier if several else lambda: None)
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(CLIP_NORM, NOISE * item.cohort))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=item.steps + 1,
            evaluation_frequency=10**6,
            train_cohort_size=item.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=users, val_data=users, postprocessors=[noise]),
        PyTorchModel(network, torch.optim.SGD, torch.optim.Adam(network.parameters(), lr=0.001)),
        NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=LOCAL_LR,
            local_batch_size=None,
            local_max_grad_norm=GRADIENT_CLIP,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Watch(watch)],
        send_metrics_to_platform=False,
    )
    measured.users = item.cohort * item.steps
    if several:
        sums = torch.tensor([measured.learning, float(measured.frames)], dtype=torch.float64)
        torch.distributed.all_reduce(sums)
        measured.learning, measured.frames = float(sums[0]), int(sums[1])
    if leads:
        measured.write(out)


if __name__ == "__main__":
    main()
