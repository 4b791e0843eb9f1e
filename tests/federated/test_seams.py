"""Extensions of one's own through the seams: a local rule with a state, an aggregator, a server optimizer."""

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from pydantic import Field

import sottovoce as sv
from own_noise import Cancelling
from sottovoce.config import resolve
from sottovoce.data.batching import Batching
from sottovoce.data.population import Population
from sottovoce.data.text import TokenSet
from sottovoce.distributed import Group
from sottovoce.federated.aggregator import Collected
from sottovoce.federated.client import Client
from sottovoce.federated.engine import Engine
from sottovoce.federated.federated_options import Local
from sottovoce.federated.local_rules import LocalRule, LocalState
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.federated.weights import user_weights
from sottovoce.model.model_options import TransformerOptions
from sottovoce.model.recogniser import Recogniser
from sottovoce.optim import Optimizer, Sgd, State
from sottovoce.optim.base import no_ratios
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

SMALL = TransformerOptions(blocks=1, width=16, heads=2, mlp_width=32, dropout=0.1, layer_drop=0.0)


class LocalMomentum(LocalRule):
    """A local momentum: a state that lives as long as a user's work."""

    name: Literal["local-momentum"] = "local-momentum"
    decay: float = 0.5

    def start(self, theta, user, t):
        return LocalState({"velocity": torch.zeros_like(theta)})

    def correct_(self, gradient, theta_k, theta, state):
        gradient.add_(state.vectors["velocity"], alpha=self.decay)
        state.vectors["velocity"].copy_(gradient)


class Remembering(LocalRule):
    """Notes who worked when: what a device would keep from one central step to the next."""

    name: Literal["remembering"] = "remembering"
    seen: dict = Field(default_factory=dict)

    def start(self, theta, user, t):
        self.seen.setdefault(user, []).append(t)
        return LocalState()

    def finish(self, theta_k, theta, state):
        self.seen.setdefault("finished", []).append(bool((theta_k != theta).any()))


class ControlVariates(LocalRule):
    """SCAFFOLD's client side: every user remembers the mean gradient of its last work."""

    name: Literal["control-variates"] = "control-variates"
    kept: dict = Field(default_factory=dict)

    def start(self, theta, user, t):
        _, variate = self.kept.get(user, (-1, torch.zeros_like(theta)))
        return LocalState({"variate": variate})

    def correct_(self, gradient, theta_k, theta, state):
        gradient.sub_(state.vectors["variate"])

    def finish(self, theta_k, theta, state):
        mean = (theta - theta_k) / (state.steps * state.local_lr)
        self.kept[state.user] = state.t, state.vectors["variate"] + mean


class SignSgd(Optimizer):
    """A server optimizer of one's own."""

    name: Literal["sign-sgd"] = "sign-sgd"

    def start(self, theta):
        return State()

    def step(self, theta, gradient, state, lr, partition):
        state.steps += 1
        theta.sub_(gradient.sign(), alpha=lr)
        return no_ratios(theta, partition)


@dataclass
class OneByOne:
    """An aggregator without processes: every user sends its integers on its own, in any order, as a client would."""

    population: object
    recogniser: Recogniser
    client: Client
    mechanism: Mechanism
    sent: list = field(default_factory=list)
    leads: bool = True

    def from_leader(self, item):
        return item

    def broadcast_(self, vector):
        return vector

    def collect(self, t, theta, cohort, figures):
        weights = user_weights(self.population, cohort, self.mechanism.participation)
        largest = self.mechanism.require_range(len(cohort))
        total = torch.zeros(len(theta), dtype=torch.int64)
        for place in np.random.default_rng(t).permutation(len(cohort)):
            update, name = torch.zeros_like(total), self.population.key_of(int(cohort[place]))
            state = self.client.start_(self.recogniser, theta, t, name)
            rows = self.population.rows_of(int(cohort[place]))
            for batch in self.client.batches(t, name, rows, self.recogniser.encoder):
                self.client.step_(self.recogniser, theta, batch, state)
            delta = self.client.finish_(self.recogniser, theta, state)
            add_clipped_(update, delta, int(weights[place]), self.mechanism, largest)
            self.sent.append(update)
            total += update
        return Collected(total, int(weights.sum()))


@pytest.fixture
def users(make_store):
    return Population.of(make_store({"a": 4, "b": 3, "c": 2, "d": 1}))


def engine(users, make_aggregator, rule=None, server=None):
    model = Recogniser.make(SMALL, TokenSet(("en",))).initialise(0)
    privacy = Privacy(clip_norm=0.05, clipping="dim", sigma_dp=0.01)
    mechanism = Mechanism(privacy, Participation(population=4, cohort_size=3), model.flat.partition())
    local = Local(lr=0.1, steps=2, **({} if rule is None else {"rule": rule}))
    client = Client(users.store, Batching(seconds=3), local, None, seed=1)
    server = server or Sgd()
    aggregator = make_aggregator(users, model, client, mechanism)
    return Engine(aggregator, model, mechanism, server, server.start(model.flat.theta), users=len(users), seed=1)


def processes(*parts):
    return ProcessAggregator(Group(), *parts)


def test_who_adds_up_changes_no_bit(users):
    runs = [engine(users, make) for make in (processes, OneByOne)]
    for t in range(3):
        for run in runs:
            run.step(t, 0.5)
    assert torch.equal(runs[0].theta, runs[1].theta)
    assert len(runs[1].aggregator.sent) > 0


def test_processes_with_other_frozen_parameters_hold_another_model(users):
    def checksum(change):
        model = Recogniser.make(SMALL, TokenSet(("en",)), trainable=("output",)).initialise(0)
        model.flat.frozen_tensors()[0].data[0] += change
        return ProcessAggregator(Group(), users, model, None, None)._frozen_bits

    assert checksum(0.0) == checksum(0.0) != checksum(1.0)


def small_run(**federated):
    tree = {
        "model": SMALL,
        "batching": {"seconds": 3},
        "participation": {"population": 3, "cohort_size": 2},
        "privacy": {"clip_norm": 0.1, "clipping": "dim", "sigma_dp": 1.0},
        "federated": {"local": {"steps": 1}, "evaluate_every": 100, "checkpoint_every": 1, **federated},
    }
    return sv.preset("tiny", tree)


@dataclass
class Terminated(OneByOne):
    """An aggregator that knows nothing of requests to stop, in a process that gets one in its second step."""

    def collect(self, t, theta, cohort, figures):
        if t == 1:
            signal.raise_signal(signal.SIGTERM)
        return super().collect(t, theta, cohort, figures)


def test_an_aggregator_is_chosen_in_python_and_a_run_with_it_stops_on_sigterm(make_store, tmp_path):
    store = make_store({"a": 2, "b": 2, "c": 1})

    def make(kind):
        return lambda given: kind(given.population, given.recogniser, given.client, given.mechanism)

    settings = small_run(central_steps=4)
    stopped = sv.train_federated(settings, tmp_path / "own", train=store, aggregator=make(Terminated))
    assert stopped.checkpoint.step == 2
    assert stopped.result is None
    own = sv.train_federated(settings, tmp_path / "own", train=store, aggregator=make(OneByOne))
    processes = sv.train_federated(settings, tmp_path / "processes", train=store)
    models = [(run.path / "last" / "model.safetensors").read_bytes() for run in (own, processes)]
    assert models[0] == models[1]


def test_a_local_rule_of_ones_own_has_a_state(users):
    plain, heavy, none = (engine(users, processes, rule) for rule in (None, LocalMomentum(), LocalMomentum(decay=0.0)))
    for run in (plain, heavy, none):
        run.step(0, 1.0)
    assert torch.equal(plain.theta, none.theta)
    assert not torch.equal(plain.theta, heavy.theta)


def test_a_local_rule_knows_the_user_and_the_step_and_when_the_work_ends(users):
    rule = Remembering(seen={})
    run = engine(users, processes, rule)
    cohorts = [run._draw_cohort(t).tolist() for t in range(3)]
    for t in range(3):
        run.step(t, 1.0)
    assert {name: steps for name, steps in rule.seen.items() if name != "finished"} == {
        users.key_of(user): [t for t in range(3) if user in cohorts[t]] for user in {u for c in cohorts for u in c}
    }
    assert all(rule.seen["finished"])


def test_a_local_rule_can_remember_each_user_from_step_to_step(users):
    rule, plain = ControlVariates(kept={}), engine(users, processes)
    run = engine(users, processes, rule)
    cohorts = [run._draw_cohort(t).tolist() for t in range(3)]
    for t in range(3):
        run.step(t, 1.0)
        plain.step(t, 1.0)
        if t == 0:
            assert torch.equal(run.theta, plain.theta)  # nothing to remember yet
    assert not torch.equal(run.theta, plain.theta)
    last = {users.key_of(user): t for t in range(3) for user in cohorts[t]}
    assert {user: t for user, (t, _) in rule.kept.items()} == last
    assert all(bool(variate.any()) for _, variate in rule.kept.values())


def test_extensions_are_chosen_by_name_or_given_as_they_are(users):
    named = resolve(
        "tiny", {"federated": {"optimizer": {"name": "sign-sgd"}, "local": {"rule": {"name": "remembering"}}}}
    )
    assert named.config.federated.optimizer == SignSgd()
    given = resolve("tiny", {"federated": {"local": {"rule": LocalMomentum(decay=0.1)}}}).config.federated.local.rule
    assert given == LocalMomentum(decay=0.1)
    assert named.config.model_dump(mode="json")["federated"]["optimizer"] == {"name": "sign-sgd"}
    run = engine(users, processes, server=SignSgd())
    before = run.theta.clone()
    run.step(0, 0.25)
    moved = (before - run.theta).abs()
    assert float(moved[moved > 0].mean()) == pytest.approx(0.25, rel=1e-5)


def test_noise_with_a_memory_is_resumed_to_the_bit_and_its_memory_is_secret(make_store, tmp_path):
    store = make_store({"a": 2, "b": 2, "c": 1})
    tree = {
        "model": SMALL,
        "batching": {"seconds": 3},
        "participation": {"population": 3, "cohort_size": 2},
        "privacy": {"clip_norm": 0.1, "clipping": "dim", "sigma_dp": 1.0, "noise": Cancelling()},
        "federated": {"local": {"steps": 1}, "central_steps": 4, "evaluate_every": 100, "checkpoint_every": 1},
    }
    sv.train_federated(sv.preset("tiny", tree), tmp_path / "whole", train=store)
    for steps in (2, 4):
        settings = sv.preset("tiny", tree, {"federated": {"central_steps": steps}})
        sv.train_federated(settings, tmp_path / "twice", train=store)
    models = [(tmp_path / name / "last" / "model.safetensors").read_bytes() for name in ("whole", "twice")]
    assert models[0] == models[1]
    secret = tmp_path / "twice" / "last" / "noise.safetensors"
    assert secret.stat().st_mode & 0o777 == 0o600
    secret.unlink()
    with pytest.raises(sv.PrivacyError, match="The state of the noise is missing"):
        sv.train_federated(
            sv.preset("tiny", tree, {"federated": {"central_steps": 5}}), tmp_path / "twice", train=store
        )


class Nameless(Sgd):
    """A subclass without a name of its own: every file would call it its parent."""


def test_an_extension_needs_a_name_of_its_own():
    with pytest.raises(sv.ConfigError, match="Nameless needs a name of its own"):
        resolve("tiny", {"federated": {"optimizer": Nameless()}})


def test_nobody_but_the_leader_gets_anything_of_the_sum(tmp_path):
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).parents[1])!r}]\n"
        "from pathlib import Path\n"
        "from sottovoce.workers import run_workers\n"
        "import reducing\n"
        "if __name__ == '__main__':\n"
        f"    run_workers(reducing.leave_with_the_sum, (Path({str(tmp_path)!r}),), 3, 1)\n"
    )
    (tmp_path / "main.py").write_text(code)
    subprocess.run([sys.executable, str(tmp_path / "main.py")], check=True)
    places = torch.arange(1, 8193).view(2, 4096)
    leader, *others = (torch.load(tmp_path / f"few-{rank}.pt") for rank in range(3))
    assert torch.equal(leader, 12 * places)
    for rank, other in enumerate(others, 1):  # every process keeps its own part
        assert torch.equal(other, (3 + rank) * places)
    leader, *others = (torch.load(tmp_path / f"many-{rank}.pt") for rank in range(3))
    assert torch.equal(leader, 12 * places)
    for rank, other in enumerate(others, 1):
        masked = (other - sum(3 + place for place in range(rank + 1)) * places).flatten()  # less what it has passed on
        assert len(masked.unique()) == len(masked)
        for bit in range(64):
            assert 0.4 < ((masked >> bit) & 1).double().mean() < 0.6
