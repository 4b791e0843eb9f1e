"""The computation of one central step: FLOPs of a second of audio, local work of a user, and the busiest process.

FLOPs are those of the matrix products; a multiplication and an addition count as two. The encoder knows them. For the
transformer, with w the width, m the width of the MLP and n the outputs of an utterance, the forward pass of one output
(33.3 a second) takes

    conv 2 * 7 * (80 + 1) * 2w    qkv 6 w^2    wf 2 w^2    attention 4 w n    MLP 4 w m    output 2 w tokens

The backward pass computes each twice more, the convolution once: its input needs no gradient. A dropped block computes
nothing. Frozen parameters (`federated.trainable`) save a part of the backward pass: see `saved_by_freezing`. Adapters
add thin products to it: for every parameter of A and B one multiplication and addition, two where A trains, too. To
merge them into their matrices takes no more than some outputs do, and is not counted.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import nn

from sottovoce.config import Config
from sottovoce.data.batching import cut_by_total
from sottovoce.errors import ConfigError
from sottovoce.estimate.sized_encoder import sized_encoder
from sottovoce.estimate.user_audio import Floats, UserAudio
from sottovoce.features.logmel import FRAMES_PER_SECOND
from sottovoce.federated.process_aggregator import STEP_FRAMES
from sottovoce.model.adapter_options import NO_ADAPTERS, Adapters
from sottovoce.model.adapters import adapted_matrices, plain_parameters
from sottovoce.model.encoder import Encoder
from sottovoce.model.encoder_options import EncoderOptions
from sottovoce.model.flat import trainable_roles
from sottovoce.model.roles import ADAPTERS, Trainable
from sottovoce.randomness import stream

# How users come to processes. `longest first` is what our engine does; `dealt` gives every process as many, whoever
# they are, and fills their batches to the last second. It explains the paper's rows better (docs/estimate.md).
Sharing = Literal["longest first", "dealt"]

FROZEN = "frozen"  # the part of the FLOPs that frozen parameters save
_LENGTH_SHAPE = 9.7  # of utterances: a deviation of 0.32 of their mean
_DRAWN_UTTERANCES = 1 << 14
_DRAWN_USERS = 1 << 16  # at least: as many cohorts as that makes
_MOST_USERS = 1 << 18  # of one cohort: beyond, what is drawn is scaled up


def flops_per_second(
    model: EncoderOptions,
    tokens: int,
    utterance_seconds: float,
    *,
    drops: bool = True,
    trainable: Trainable = "all",
    adapters: Adapters = NO_ADAPTERS,
) -> dict[str, float]:
    """Return the FLOPs of one second of audio, forward and backward, part by part.

    With `drops`, blocks that layer drop skips are left out, on average. FLOPs that frozen parameters save are the part
    FROZEN, a negative number, so that the parts always add up.
    """
    encoder = sized_encoder(model, tokens, adapters)
    per_second = FRAMES_PER_SECOND / encoder.output_stride
    outputs = utterance_seconds * per_second
    per_output = encoder.flops_per_output(outputs, drops=drops)
    if adapters.rank:
        per_output = {**per_output, ADAPTERS: _adapter_flops(encoder, adapters, drops=drops)}
    saved = saved_by_freezing(encoder, outputs, trainable, drops=drops)
    if saved:
        per_output = {**per_output, FROZEN: -saved}
    return {part: per_second * flops for part, flops in per_output.items()}


def _adapter_flops(encoder: Encoder, adapters: Adapters, *, drops: bool) -> float:
    """Return the FLOPs of one output that the gradients of adapters take."""
    matrices = adapted_matrices(encoder).values()
    thin = sum(matrix.a.numel() + matrix.b.numel() for matrix in matrices)
    dropped = getattr(encoder.options, "layer_drop", 0.0) if drops else 0.0
    return (4 if adapters.train == "both" else 2) * thin * (1 - dropped)


def saved_by_freezing(encoder: Encoder, outputs: float, trainable: Trainable, *, drops: bool = True) -> float:
    """Return the FLOPs of one output that the backward pass saves because some parameters are frozen.

    The forward pass is always complete. Gradients of weights are computed for trainable matrices only. Gradients of
    inputs, and the backward pass of attention, are computed down to the lowest tensor that trains.

    This is an approximation: parameters are taken to be in the order of the forward pass, every pass of a matrix costs
    the same per parameter, and FLOPs that grow with the utterance (attention) have no parameters. Tables of embeddings,
    such as relative positions, are not matrices.
    """
    trained = trainable_roles(encoder, trainable)
    names = [name for name, _ in encoder.named_parameters()]
    below = set(names[: min(names.index(name) for name in trained)])
    tables = {id(module.weight) for module in encoder.modules() if isinstance(module, nn.Embedding)}
    plain = plain_parameters(encoder)
    sizes = {name: one.numel() for name, one in plain.items() if one.dim() > 1 and id(one) not in tables}
    first = next(iter(sizes), None)  # its inputs are the features, which need no gradient
    with_input_gradient = sum(size for name, size in sizes.items() if name != first)
    if not with_input_gradient:
        return 0.0
    frozen = sum(size for name, size in sizes.items() if name not in trained)
    without_input_gradient = sum(size for name, size in sizes.items() if name in below and name != first)
    matrices = sum(encoder.flops_per_output(0.0, drops=drops).values())
    attention = sum(encoder.flops_per_output(outputs, drops=drops).values()) - matrices
    per_parameter = matrices / (2 * sum(sizes.values()) + with_input_gradient)  # of one pass
    of_matrices = per_parameter * (frozen + without_input_gradient)
    return of_matrices + 2 / 3 * attention * without_input_gradient / with_input_gradient


def local_work(config: Config, seconds: Floats, utterance_seconds: float | None) -> tuple[Floats, Floats]:
    """Return local steps and seconds of audio computed in one central step, of users with these seconds of audio.

    As `planned_batches` does it: an epoch is cut into batches of at most `batching.seconds` in total, and a user with
    less than a full batch has one; local steps go from epoch to epoch. Padding is not counted. Without a length of
    utterances, batches are full to the last second.
    """
    heard = seconds if config.batching.max_seconds_per_user is None else seconds.clip(
        max=config.batching.max_seconds_per_user
    )  # fmt: skip
    full = config.batching.seconds
    cut = np.ceil(heard / (full if utterance_seconds is None else batch_audio(full, utterance_seconds)))
    batches = np.where(heard <= full, np.minimum(cut, 1.0), cut)  # what fits into one batch is not cut
    local = config.federated.local
    if local.steps is None:
        return local.passes * batches, local.passes * heard
    steps = np.where(batches > 0, float(local.steps), 0.0)
    return steps, steps * heard / np.maximum(batches, 1.0)


@cache
def batch_audio(batch_seconds: float, utterance_seconds: float) -> float:
    """Return the seconds of audio in a full batch of shuffled utterances of this mean length.

    Lengths are taken for a gamma distribution as wide as Common Voice's. The draws are the same in every call.
    """
    drawn = stream(0, "estimate-batches").gamma(_LENGTH_SHAPE, utterance_seconds / _LENGTH_SHAPE, _DRAWN_UTTERANCES)
    frames = np.maximum(drawn * FRAMES_PER_SECOND, 1).astype(np.int64)
    batches = cut_by_total(frames, batch_seconds * FRAMES_PER_SECOND)
    return float(frames.sum()) / FRAMES_PER_SECOND / len(batches)


def cohort_size(config: Config) -> float:
    """Return S, the expected number of users in a step."""
    participation = config.participation
    if participation.sampling != "everyone":
        return participation.cohort_size
    if participation.population is None:
        raise ConfigError("participation.population is required where sampling is everyone: it is the cohort's size.")
    return float(participation.population)


@dataclass(frozen=True, eq=False)
class Loads:
    """Local steps and seconds of audio of every process, in one central step of each of many simulated cohorts."""

    steps: Floats  # (cohorts, processes)
    seconds: Floats

    def busiest(self, seconds_per_step: float, seconds_per_audio: float) -> float:
        """Return how long the slowest process works, on average over the cohorts, at this pace."""
        return float((seconds_per_step * self.steps + seconds_per_audio * self.seconds).max(axis=1).mean())

    def mean(self, seconds_per_step: float, seconds_per_audio: float) -> float:
        """Return how long processes work on average."""
        return seconds_per_step * float(self.steps.mean()) + seconds_per_audio * float(self.seconds.mean())


def loads(config: Config, audio: UserAudio, processes: int, sharing: Sharing) -> Loads:
    """Simulate cohorts and share them out; the mean over cohorts and processes is exact.

    The draws are the same in every call. Cohorts have S users: that a Poisson cohort's size varies is left out.
    """
    if processes < 1:
        raise ConfigError(f"Expected processes={processes} >= 1.")
    size = cohort_size(config)
    users = min(max(round(size), 1), _MOST_USERS)
    cohorts = max(_DRAWN_USERS // users, 1)
    steps, seconds = local_work(config, audio.seconds, typical_utterance(audio, sharing))
    drawn = audio.draw(cohorts * users, stream(0, "estimate", users)).reshape(cohorts, users)
    share = _longest_first if sharing == "longest first" else _dealt
    costs = np.rint(seconds * FRAMES_PER_SECOND) + STEP_FRAMES * steps
    places = share(costs[drawn], processes) + processes * np.arange(cohorts)[:, None]

    def shared(values: Floats) -> Floats:
        sums: Floats = np.bincount(places.ravel(), values[drawn].ravel(), cohorts * processes).astype(np.float64)
        wanted = size * audio.mean(values) / processes
        return (sums * (wanted / sums.mean() if wanted > 0 else 0.0)).reshape(cohorts, processes)

    return Loads(shared(steps), shared(seconds))


def typical_utterance(audio: UserAudio, sharing: Sharing) -> float | None:
    """Return the length of utterances that fill batches; None where batches are filled to the last second."""
    return audio.utterance_seconds if sharing == "longest first" else None


def _longest_first(costs: Floats, processes: int) -> npt.NDArray[np.int64]:
    """Return the process of every user of every cohort as the engine shares them out, longest first.

    This is `share_out` for all cohorts at once: each takes its next longest user in every round.
    """
    whole, cohorts = np.rint(costs).astype(np.int64), np.arange(len(costs))
    places = np.zeros(costs.shape, dtype=np.int64)
    busy = np.zeros((len(costs), processes), dtype=np.int64)
    for user in np.argsort(-whole, axis=1, kind="stable").T:
        least = busy.argmin(axis=1)
        places[cohorts, user] = least
        busy[cohorts, least] += whole[cohorts, user]
    return places


def _dealt(costs: Floats, processes: int) -> npt.NDArray[np.int64]:
    """Return the process of every user where users are dealt in turn, without looking at their costs."""
    return np.broadcast_to(np.arange(costs.shape[1]) % processes, costs.shape)
