"""A client's work: it answers tasks with the clipped integers of its own users, by the same code as the simulation.

The client trusts the server with the model and the settings of local work, and with nothing else: it runs no code from
the server, answers only for its own users, never without clipping, and sends nothing but the integers.
"""

from collections.abc import Mapping

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.config import Config, Layer, Resolved
from sottovoce.data.population import Population
from sottovoce.data.store import Store
from sottovoce.deploy.messages import (
    FROZEN,
    PROTOCOL,
    THETA,
    BadMessage,
    Envelope,
    Integers,
    TaskHeader,
    read_task,
    signed_update,
)
from sottovoce.errors import ConfigError, DataError, PrivacyError
from sottovoce.federated.client import Client
from sottovoce.model.flat import FlatModel
from sottovoce.model.recogniser import Recogniser
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.runs.training import start_model


class LocalTrainer:
    """The users of one client, and the model they train."""

    def __init__(self, store: Store, users: Mapping[str, str], key: Ed25519PrivateKey) -> None:
        """Hold a store whose speakers are enrolled; `users` are their enrolled names, with their names in the store."""
        self._population = Population.of(store).trainable()
        places = {name: place for place, name in enumerate(self._population.keys())}
        self._rows = {user: self._population.rows_of(places[speaker]) for user, speaker in users.items()}
        self.users, self._key = frozenset(users), key
        self._settings: dict[str, object] | None = None
        self._frozen = b""

    def answer(self, envelope: Envelope) -> tuple[TaskHeader, Envelope]:
        """Train on the user whom a task names; return the task's header, and the signed update.

        A task that this client must not or cannot answer is an error of one line.
        """
        task = self.read(envelope)
        if task.masked:
            raise PrivacyError("The server asks for a masked update, which this client cannot make: refused.")
        return task, signed_update(task, self.integers(task, envelope), self._key)

    def read(self, envelope: Envelope) -> TaskHeader:
        """Return the header of a task that this client can answer."""
        try:
            task = read_task(envelope)
        except BadMessage as error:
            raise DataError(f"A task cannot be read: {error}. Install the server's version of sottovoce.") from None
        if task.protocol != PROTOCOL:
            raise ConfigError(f"The server speaks protocol {task.protocol}, this client {PROTOCOL}. Upgrade the older.")
        if task.user not in self._rows:
            raise DataError("The server asks for a user whose audio is not here. Enrol again with a new token.")
        return task

    def integers(self, task: TaskHeader, envelope: Envelope) -> Integers:
        """Train on the user whom a task names; return the clipped integers."""
        self._prepare(task, envelope.parts.get(FROZEN, b""))
        return self._update(task, envelope.parts[THETA])

    def _prepare(self, task: TaskHeader, frozen: bytes) -> None:
        """Make the model that a task is about, unless it is that of the last task."""
        if self._settings == task.settings and self._frozen == frozen:
            return
        config = Resolved("the server's", Config(), {}, {}).over(Layer(task.settings, "the server")).config
        options = config.federated
        if self._population.store.token_set.languages != task.languages:
            raise DataError("The server's model writes another language than this store. Prepare it in that language.")
        self._recogniser: Recogniser = start_model(
            config, self._population, fresh=True, trainable=options.trainable, adapters=options.adapters
        )
        fill_frozen_(self._recogniser.flat, frozen)
        self._config, self._settings, self._frozen = config, task.settings, frozen
        self._client = Client(
            *(self._population.store, config.batching, options.local, config.specaugment, config.seed),
            partition=options.partition,
        )

    def _update(self, task: TaskHeader, content: bytes) -> Integers:
        """Return a user's clipped integers; zeros where its delta is not finite."""
        recogniser, config = self._recogniser, self._config
        mechanism = Mechanism(
            config.privacy,
            config.participation,
            recogniser.flat.partition(config.federated.partition),
            config.randomness.source,
            task.bounds,
        )
        if mechanism.clip_norms is None or config.participation.weight != "one":
            raise PrivacyError("The server asks for an update that is not clipped, or weighs audio: refused.")
        if len(content) != 4 * recogniser.flat.theta.numel():
            raise DataError("The server's model has another size than its settings say. Upgrade the older side.")
        theta = torch.from_numpy(np.frombuffer(content, "<f4").copy())
        state = self._client.start_(recogniser, theta, task.step, task.user)
        for batch in self._client.batches(task.step, task.user, self._rows[task.user], recogniser.encoder):
            self._client.step_(recogniser, theta, batch, state)
        delta = self._client.finish_(recogniser, theta, state)
        total = torch.zeros(sum(mechanism.summed.sizes), dtype=torch.int64)
        add_clipped_(total, delta, WEIGHTS, mechanism, mechanism.require_range(1))
        return total.numpy()


def fill_frozen_(flat: FlatModel, content: bytes) -> None:
    """Set the parameters that do not train (see `fleet_aggregator.frozen_bytes`)."""
    tensors = flat.frozen_tensors()
    values = torch.from_numpy(np.frombuffer(content, "<f4").copy())
    if len(values) != sum(tensor.numel() for tensor in tensors):
        raise DataError("The server's frozen parameters do not fit its settings. Upgrade the older side.")
    with torch.no_grad():
        for tensor, part in zip(tensors, torch.split(values, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))
