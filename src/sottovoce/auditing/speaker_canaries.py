"""Canaries that are speakers: they train like everyone, on speech that nobody else has, and are found by their deltas.

Whoever sees every model can do each canary's local work again and knows the delta c_i that it would send at every step.
Deltas of different speakers resemble each other, so a projection on one is disturbed by all others. The score is
therefore the best linear estimate of all coins s together, from all releases:

    sum_t = q C_t' s + noise of std n                 C_t: the clipped deltas of all canaries, in units of C
    s = 1/2 + (A + 4 I)^-1 (v - A 1/2)                A = q^2/n^2 sum C_t C_t',  v = q/n^2 sum C_t sum_t

with 4 the inverse variance of a fair coin, and n an eighth of the noise that is claimed. With all of it the estimate
would be best for correct code, and blind to deltas that are too large: they disturb each other more than noise does.

These canaries see what the others cannot: that a client's whole work, from audio to delta, reveals no more than its
delta. But they are weaker: there are fewer of them, and their deltas overlap.
"""

import numpy as np
import torch
from torch import Tensor

from sottovoce.auditing.one_run import Floats
from sottovoce.data.population import Population
from sottovoce.errors import ConfigError
from sottovoce.federated.client import Client
from sottovoce.model.recogniser import Recogniser
from sottovoce.privacy.mechanism import Mechanism

_COIN_PRECISION = 4.0
_ASSUMED_NOISE = 0.125  # of what is claimed


class SpeakerEvidence:
    """Estimates, from all releases, which canary speakers are in the population."""

    def __init__(self, client: Client, recogniser: Recogniser, mechanism: Mechanism) -> None:
        """Prepare for the releases of a mechanism; every speaker of the client's store is a canary."""
        if mechanism.clip_norms is None:
            raise ConfigError("An audit needs a guarantee: set privacy.clipping and privacy.clip_norm.")
        self._client, self._recogniser, self._mechanism = client, recogniser, mechanism
        self._speakers = Population.of(client.store)
        count = len(self._speakers)
        self._deltas = torch.zeros(count, recogniser.flat.theta.numel())
        self._precision, self._evidence = np.zeros((count, count)), np.zeros(count)
        self._norms, self._seen = np.zeros(count), 0

    def begin(self, t: int, theta: Tensor) -> None:
        """Do the local work of every canary in central step t."""
        client, recogniser = self._client, self._recogniser
        for number, name in enumerate(self._speakers.speakers):
            state = client.start_(recogniser, theta, t, name)
            for batch in client.batches(t, name, self._speakers.rows_of(number), recogniser.encoder):
                client.step_(recogniser, theta, batch, state)
            self._deltas[number] = self._clipped(client.finish_(recogniser, theta, state))

    def _clipped(self, delta: Tensor) -> Tensor:
        """Return a delta as clipping should leave it, in units of C."""
        mechanism = self._mechanism
        norms, norm = mechanism.partition.norms(delta), float(mechanism.privacy.clip_norm or 0.0)
        bounds = norms.new_tensor(mechanism.clip_norms or (norm,))
        whole = torch.linalg.vector_norm(norms)
        if mechanism.privacy.clipping == "global":
            factors = torch.clamp(bounds / whole, max=1.0).expand_as(norms)
        elif mechanism.privacy.rule == "normalize":
            factors = torch.ones_like(norms) if whole < norm else torch.where(norms > 0, bounds / norms, 0.0)
        else:
            factors = torch.clamp(bounds / norms, max=1.0)
        return mechanism.partition.scale_(delta.clone(), factors.nan_to_num(1.0) / norm)

    def see(self, average: Tensor) -> None:
        """Take one released average into account."""
        mechanism = self._mechanism
        bound, q = mechanism.participation.weight_bound, mechanism.sampling_prob
        std = _ASSUMED_NOISE * mechanism.privacy.sigma_dp * mechanism.divisor / bound
        total = average.double().cpu() * (mechanism.divisor / (bound * float(mechanism.privacy.clip_norm or 0.0)))
        deltas = self._deltas.double()
        products = (deltas @ deltas.T).numpy()
        self._precision += (q / std) ** 2 * products
        self._evidence += q / std**2 * (deltas @ total).numpy()
        self._norms += np.sqrt(np.diagonal(products))
        self._seen += 1

    @property
    def odds(self) -> Floats:
        """The best linear estimate of every coin, less 1/2."""
        prior = _COIN_PRECISION * np.eye(len(self._evidence))
        evidence = self._evidence - self._precision.sum(1) / 2
        return np.asarray(np.linalg.solve(self._precision + prior, evidence))

    @property
    def reach(self) -> Floats:
        """The mean norm of every canary's clipped delta, in units of C."""
        return self._norms / max(self._seen, 1)
