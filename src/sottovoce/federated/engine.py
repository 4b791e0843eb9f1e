"""One central step: `step.py`, carried out by an aggregator, with a ledger and figures.

The engine is the server. It draws the cohort, lets the aggregator collect the sum of the users' clipped deltas while
the noise is drawn, releases the sum, and moves theta. It must equal `step.py` to the bit, for any number of processes.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sottovoce.data.cohort import UserGroups
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError
from sottovoce.federated.aggregator import Aggregator, Collected, FollowsBounds, SharesNoise, Users
from sottovoce.federated.diagnostics import Figures
from sottovoce.federated.noise_drawing import NoiseDrawing
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import AnyOptimizer, State
from sottovoce.privacy.bounds_state import Bounds, mechanism_of_step, set_bounds_
from sottovoce.privacy.ledger import Ledger
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import NoiseState
from sottovoce.privacy.release import release
from sottovoce.privacy.step_noise import DrawnNoise, NoiseRequest


@dataclass
class Engine:
    """One process' part in the central steps of a run."""

    aggregator: Aggregator
    recogniser: Recogniser
    mechanism: Mechanism
    server: AnyOptimizer
    state: State
    users: int  # how many there are; the public number K may be larger
    seed: int
    ledger: Ledger | None = None  # on the leader only
    groups: UserGroups | None = None  # of users that take turns; None: all may take part in every step
    stopping: bool | None = False  # all processes agreed to stop after the last step; None: nobody has asked them
    theta: Tensor = field(init=False)
    noise_state: NoiseState = field(init=False, repr=False)  # secret; a resumed run sets it

    def __post_init__(self) -> None:
        """Keep theta apart from the model, which clients train."""
        self.theta = self.recogniser.flat.theta.clone()
        self.noise_state = self.mechanism.start_noise(self.theta)
        if self.mechanism.privacy.adapts and not isinstance(self.aggregator, FollowsBounds):
            raise ConfigError(
                f"privacy.clipping={self.mechanism.privacy.clipping} changes bounds from step to step, and this "
                "aggregator has no method `follow` to be told. Add it, or use another clipping."
            )

    def step(self, t: int, central_lr: float) -> Figures:
        """Move theta by one central step; return its figures."""
        self._follow_bounds()
        figures = Figures(self.mechanism.partition, self.mechanism.adapting_norms)
        with figures.timed("cohort"):
            cohort = self._draw_cohort(t)
        with self._draw_noise(t) as drawing:
            collected = self.aggregator.collect(t, self.theta, cohort, figures)
            with figures.timed("noise"):
                noise = drawing.collected()
        with figures.timed("release"):
            average = self._release(t, collected, noise, figures)
        with figures.timed("server"):
            figures.trust_ratios = self.server.step(
                self.theta, average, self.state, central_lr, self.mechanism.partition
            )
            self.recogniser.flat.load_(self.theta)
        self.stopping = collected.stopping
        return figures

    def _follow_bounds(self) -> None:
        """Where clip bounds adapt, continue with those of this step, here and in the aggregator."""
        if isinstance(self.aggregator, FollowsBounds) and self.mechanism.privacy.adapts:
            self.mechanism = mechanism_of_step(self.mechanism, self.state)
            self.aggregator.follow(self.mechanism)

    def _draw_cohort(self, t: int) -> Users:
        """Return who takes part: the same on every process, and known to nobody else."""
        rng = self.mechanism.randomness(self.seed, "cohort", t)
        cohort = self.mechanism.draw_cohort(self.users, rng, t=t, groups=self.groups)
        # Every process draws the same seeded cohort; a secure one cannot be drawn twice.
        if self.mechanism.source != "secure":
            return cohort
        drawn: Users = np.array(self.aggregator.from_leader(cohort.tolist()), dtype=np.int64)
        return drawn

    def _draw_noise(self, t: int) -> NoiseDrawing:
        """Begin to draw the noise of a step: this process' part of it."""
        request = NoiseRequest(self.mechanism, self.seed, t, self.noise_state, device=self.theta.device)
        group = self.aggregator.noise_group if isinstance(self.aggregator, SharesNoise) else Group()
        return NoiseDrawing(request, group, leads=self.aggregator.leads)

    def _release(self, t: int, collected: Collected, noise: DrawnNoise | None, figures: Figures) -> Tensor:
        """Return the released average: made by the leader, which has the noise, and the same on every process."""
        if noise is None:
            self._share_bounds(None)
            return self.aggregator.broadcast_(torch.empty_like(self.theta))
        released = release(t, collected.total, collected.weight, noise=noise, ledger=self.ledger)
        self.noise_state = released.noise_state
        figures.released(released.average, released.diagnosis)
        self._share_bounds(released.bounds)
        return self.aggregator.broadcast_(released.average)

    def _share_bounds(self, bounds: Bounds | None) -> None:
        """Where clip bounds adapt, keep those that the leader gives for the next step, the same on every process."""
        if self.mechanism.privacy.adapts:
            known = bounds or self.mechanism.clip_norms or ()  # the others send what they have: of the same type
            set_bounds_(self.state, tuple(self.aggregator.from_leader(list(known))))
