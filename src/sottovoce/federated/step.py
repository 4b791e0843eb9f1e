"""One central step: the paper's algorithm, written out.

    1. every user joins with probability q (Poisson)
    2. each user k of the cohort trains from theta on its own audio, by default with SGD
    3. Delta_k = theta - theta_k
    4. Delta_k is clipped, to C or layer by layer to C_h
    5. Delta = (1 / qK) * sum over the cohort of Delta_k   (a public divisor, not the size of the cohort)
    6. noise of std sigma_dp * C is added to Delta, once
    7. the server optimizer moves theta by Delta as its gradient

This is the version to read. `engine.py` runs it on many processes and must equal it to the bit.
"""

import torch
from torch import Tensor

from sottovoce.data.population import Population
from sottovoce.federated.client import Client
from sottovoce.federated.weights import user_weights
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import AnyOptimizer, State
from sottovoce.privacy.bounds_state import bounds_after, mechanism_of_step, set_bounds_
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import NoiseState
from sottovoce.privacy.step_noise import NoiseRequest, draw_noise
from sottovoce.randomness import stream


def central_step(
    t: int,
    theta: Tensor,
    *,
    population: Population,
    recogniser: Recogniser,
    client: Client,
    mechanism: Mechanism,
    server: AnyOptimizer,
    state: State,
    noise_state: NoiseState,
    central_lr: float,
    seed: int,
) -> NoiseState:
    """Move theta and the server's state by one central step with seeded randomness; return the noise's next state."""
    mechanism = mechanism_of_step(mechanism, state)  # with the bounds C_h of this step, where they adapt
    groups = mechanism.groups(population.keys(), seed)  # with correlated noise only: groups take turns
    cohort = mechanism.draw_cohort(len(population), stream(seed, "cohort", t), t=t, groups=groups)
    weights = user_weights(population, cohort, mechanism.participation)
    largest = mechanism.require_range(len(cohort))

    total = torch.zeros(sum(mechanism.summed.sizes), dtype=torch.int64)
    for user, weight in zip(cohort.tolist(), weights.tolist(), strict=True):
        name = population.key_of(user)
        local_state = client.start_(recogniser, theta, t, name)
        for batch in client.batches(t, name, population.rows_of(user), recogniser.encoder):
            client.step_(recogniser, theta, batch, local_state)
        delta = client.finish_(recogniser, theta, local_state)
        add_clipped_(total, delta, weight, mechanism, largest)  # a delta that is not finite adds nothing

    mechanism.shrink_(total, int(weights.sum()))  # with q_min only
    noise = draw_noise(NoiseRequest(mechanism, seed, t, noise_state))
    noise.add_to_(total, t)
    set_bounds_(state, bounds_after(mechanism, total))  # where they adapt
    server.step(theta, mechanism.average(total), state, central_lr, mechanism.partition)
    return noise.next_state
