"""Correlated noise: exact sensitivities, noise that is post-processing, draws by key, groups that take turns, costs."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from ledgers import checkpoint, header_of, mechanism, opened, recogniser
from sottovoce.data.cohort import UserGroups
from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.model.partition import make_partition
from sottovoce.privacy.accounting import Event, Spent, pld
from sottovoce.privacy.claims import claim_at, claim_for, open_account, statement
from sottovoce.privacy.correlated_plans import correlated_plans
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger
from sottovoce.privacy.mechanism import Mechanism, plain_mechanism
from sottovoce.privacy.noise import Correlated, Gaussian, NoiseState
from sottovoce.privacy.noise.correlated import _Draws, _keys_of, rounded_quotient
from sottovoce.privacy.noise.strategies import independent_error, optimised
from sottovoce.privacy.planner import Plan, solve
from sottovoce.privacy.population_ledger import PopulationLedger
from sottovoce.privacy.privacy_options import Budget, Participation, Privacy
from sottovoce.privacy.release import release
from sottovoce.privacy.step_noise import NoiseRequest, draw_noise
from sottovoce.randomness import KeyedRandomness, SecureRandomness, stream
from sottovoce.runs.verification import verify

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "strategies.json").read_text())
BOTH = pytest.mark.parametrize("strategy", ["toeplitz", "blocks"])
STEPS = 11
SIZES = [700, 300]


def dense(noise, steps):
    """Return the strategy as a matrix of Python's integers."""
    matrix, window = [[0] * steps for _ in range(steps)], noise.matrix.window or steps
    for t in range(steps):
        for lag, entry in enumerate(noise.matrix.row(t % window)):
            matrix[t][t - lag] = entry
    return matrix


def drawn(noise, steps, rng, std=2.0**20, sizes=SIZES, state=None):
    """Return the noise of some steps, and the states before and after each of them."""
    partition = make_partition([str(place) for place in range(len(sizes))], list(sizes), "tensor")
    states, vectors = [noise.start(torch.zeros(1)) if state is None else state], []
    for t in range(steps):
        total = torch.zeros(sum(sizes), dtype=torch.int64)
        stds = [std] * len(sizes)
        states.append(noise.add_(total, stds=stds, partition=partition, rng=rng(t), state=states[-1]))
        vectors.append(total.numpy())
    return np.array(vectors), states


def seeded(t):
    return stream(3, "noise", t)


@pytest.mark.parametrize("library", ["jax-privacy", "opake-dpftrl"])
def test_strategies_are_as_good_as_those_of_others(library):
    for case in GOLDEN[library]["strategies"]:
        ours = optimised("toeplitz", case["bands"], case["steps"]).prefix_error(case["steps"])
        assert ours <= case["prefix_error"] * (1 + 1e-6)
        if not case.get("stuck"):
            assert ours == pytest.approx(case["prefix_error"], rel=1e-6)


@pytest.mark.parametrize(("bands", "steps"), [(1, 60), (2, 5), (4, 60), (7, 100), (16, 2000), (12, 6)])
@BOTH
def test_the_sensitivity_is_exact_or_too_large_and_steps_apart_touch_other_rows(strategy, bands, steps):
    noise = Correlated(bands=bands, steps=steps, strategy=strategy)
    matrix = np.array(dense(noise, 3 * bands), dtype=object)
    largest = max(sum(entry * entry for entry in column) for column in matrix.T)
    assert noise.matrix.squared_norm == largest
    assert largest <= Fraction(noise.matrix.norm) ** 2 <= largest * (1 + Fraction(1, 2**40))
    for std in (1.0, 0.1, 1 / 3, 2.0**38 * 0.6144):
        assert Fraction(noise.drawn_std(std)) ** 2 >= Fraction(std) ** 2 * largest
    for column in range(3 * bands):  # two steps of a user that are `bands` apart change different rows
        assert all(row - column < bands for row in range(3 * bands) if matrix[row][column])
        assert all(matrix[row][column] == 0 for row in range(column))
    completed = noise.complete()
    assert Correlated(**completed.model_dump()).matrix == noise.matrix
    assert noise.stands_for(completed)
    assert not Correlated(bands=bands + 1, steps=steps, strategy=strategy).stands_for(completed)


@BOTH
def test_what_is_released_follows_from_the_hidden_sums_alone(strategy):
    """R is computed from Y = A G + xi in exact integers, without G, and is G with the noise that the code draws."""
    noise = Correlated(bands=4, steps=STEPS, strategy=strategy)
    vectors, states = drawn(noise, STEPS, seeded, std=3.7)
    matrix, sums = dense(noise, STEPS), stream(0, "sums").integers(-50, 50, (STEPS, sum(SIZES)))
    draws = _Draws(noise, [3.7] * 2, SIZES, secure=False)
    keys = [_keys_of(noise.add_(torch.zeros(0, dtype=torch.int64), stds=[], partition=make_partition([], [], "tensor"),
                                rng=seeded(t), state=states[0]))[-1] for t in range(STEPS)]  # fmt: skip
    xi = np.array([draws._xi(key, 0, sum(SIZES)) for key in keys])
    hidden = np.array(matrix, dtype=object) @ sums.astype(object) + xi.astype(object)
    released = []
    for t in range(STEPS):
        rest = hidden[t] - sum((matrix[t][j] * released[j] for j in range(t)), 0 * hidden[t])
        released.append(
            np.array([math.floor(Fraction(int(one), matrix[t][t]) + Fraction(1, 2)) for one in rest], object)
        )
    assert np.array_equal(np.array(released, np.int64), sums + vectors)


@pytest.mark.parametrize("secure", [False, True])
@BOTH
def test_noise_has_the_size_that_the_strategy_promises(strategy, secure):
    noise = Correlated(bands=4, steps=STEPS, strategy=strategy)
    rng = (lambda _: SecureRandomness()) if secure else seeded
    vectors, _ = drawn(noise, STEPS, rng, std=2.0**30, sizes=[20_000])
    scaled = vectors / 2.0**30
    errors = math.sqrt((scaled.cumsum(axis=0) ** 2).mean())
    assert errors == pytest.approx(noise.matrix.prefix_error(STEPS), rel=0.02)
    assert scaled.std(axis=1).max() == pytest.approx(noise.spread, rel=0.02)
    independent = independent_error(STEPS)
    assert errors < 0.75 * independent


@pytest.mark.parametrize("secure", [False, True])
@BOTH
def test_noise_is_drawn_again_from_its_keys_alone(strategy, secure, monkeypatch):
    noise = Correlated(bands=4, steps=STEPS, strategy=strategy)
    rng = (lambda t: KeyedRandomness(b"secret", t)) if secure else seeded
    vectors, states = drawn(noise, STEPS, rng)
    for t in range(STEPS):
        resumed = NoiseState(dict(states[t].vectors))  # as a checkpoint keeps it
        again, after = drawn(noise, 1, lambda _, t=t: rng(t), state=resumed)
        assert np.array_equal(again[0], vectors[t])
        assert len(after[1].kept) == len(states[t + 1].kept)  # what follows is fast again
        assert all(torch.equal(one, other) for one, other in zip(after[1].kept, states[t + 1].kept, strict=True))
    most = 4 if strategy == "blocks" else STEPS
    assert max(state.vectors["keys"].numel() for state in states) <= 32 * most
    monkeypatch.setattr("sottovoce.privacy.noise.correlated._MOST_KEPT", 0)  # a model whose noise is not kept
    monkeypatch.setattr("sottovoce.privacy.noise.correlated._PIECE", 1 << 10)
    lean, states = drawn(noise, STEPS, rng)
    assert np.array_equal(lean, vectors)
    assert not any(state.kept for state in states)


def test_quotients_are_rounded_the_same_wherever_they_lie():
    integers = np.arange(-50, 50)
    for divisor in (1, 2, 3, 4096):
        moved = rounded_quotient(integers + 7 * divisor, divisor)
        assert np.array_equal(moved, rounded_quotient(integers, divisor) + 7)
        assert (np.abs(rounded_quotient(integers, divisor) * divisor - integers) <= divisor / 2).all()


def test_groups_take_turns_and_depend_on_the_own_name_alone():
    names = [f"user {number}" for number in range(4000)]
    groups, fewer = UserGroups.of(names, 8, seed=1), UserGroups.of(names[::2], 8, seed=1)
    turns = [set(groups.eligible(t).tolist()) for t in range(16)]
    assert set.union(*turns[:8]) == set(range(4000))
    assert sum(map(len, turns[:8])) == 4000  # everyone in one group
    assert turns[:8] == turns[8:]
    assert all(380 < len(turn) < 620 for turn in turns)
    assert [2 * user for user in fewer.eligible(3).tolist()] == [user for user in groups.eligible(3) if user % 2 == 0]
    mech = plain_mechanism(0.1, 100, 4000, "cyclic", noise=Correlated(bands=8))
    cohorts = [mech.draw_cohort(4000, stream(0, "c", t), t=t, groups=groups) for t in range(400)]
    assert all(set(cohort.tolist()) <= turns[t % 8] for t, cohort in enumerate(cohorts))
    assert np.mean([len(cohort) for cohort in cohorts]) == pytest.approx(100, abs=2)
    with pytest.raises(PrivacyError, match="need users in 8 groups"):
        mech.draw_cohort(4000, stream(0, "c"))
    with pytest.raises(PrivacyError, match="need users in 8 groups"):
        mech.draw_cohort(4000, stream(0, "c"), groups=UserGroups.of(names, 7, seed=1))


def test_n_releases_cost_one_event_for_each_turn_of_a_group():
    mech = plain_mechanism(0.1, 20, 1000, "cyclic", noise=Correlated(bands=4, steps=10))
    event = Event(2.0, 0.08)
    assert [mech.spent(n).events for n in (1, 4, 5, 8, 9)] == [{event: turns} for turns in (1, 1, 2, 2, 3)]
    one_band = plain_mechanism(0.1, 20, 1000, "cyclic", noise=Correlated(bands=1))
    assert one_band.spent(7) == plain_mechanism(0.1, 20, 1000).spent(7)
    every_turn = plain_mechanism(0.1, 250, 1000, "cyclic", noise=Correlated(bands=4))
    assert every_turn.spent(8).events == {Event(25.0, 1.0): 2}


@pytest.mark.parametrize(
    ("noise", "sampling", "message"),
    [
        (Correlated(bands=4), "poisson", r"every 4th step at most \(participation.sampling=cyclic\), not poisson"),
        (Correlated(bands=4), "everyone", "not everyone cohorts"),
        (Correlated(bands=4), "fixed", "not fixed cohorts"),
        (Gaussian(), "cyclic", "cyclic has no use with independent noise"),
    ],
)
def test_cohorts_that_do_not_belong_to_the_noise_are_refused(noise, sampling, message):
    with pytest.raises(PrivacyError, match=message):
        plain_mechanism(0.1, 1000 if sampling == "everyone" else 20, 1000, sampling, noise=noise)


def test_groups_smaller_than_a_cohort_and_matrices_that_are_none_are_refused():
    with pytest.raises(PrivacyError, match=r"b q = 1\.2 > 1"):
        plain_mechanism(0.1, 400, 1000, "cyclic", noise=Correlated(bands=3)).spent(1)
    for entries in ((4096,), (4096, 4096), (4096, 100, 200), (0, 0), (4096, -1)):
        with pytest.raises(ValueError, match="Expected"):
            Correlated(bands=max(len(entries), 2), entries=entries)
    with pytest.raises(ValueError, match="row by row"):
        Correlated(bands=2, strategy="blocks", entries=(1, 2))
    huge = mechanism(sigma_dp=1e3, noise=Correlated(bands=4), sampling="cyclic")
    with pytest.raises(PrivacyError, match="cannot be drawn exactly"):
        huge.require_range(10)


PARTITION = recogniser().flat.partition("tensor")
D = sum(PARTITION.tensor_sizes)


def private(source="seeded", **privacy):
    options = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.1, noise=Correlated(bands=4, steps=8), **privacy)
    participation = Participation(population=1000, cohort_size=20, sampling="cyclic")
    return Mechanism(options, participation, PARTITION, source)


def released(mech, t, state, ledger, value=2**30):
    total = torch.full((D,), value, dtype=torch.int64)
    return release(t, total, 20, noise=draw_noise(NoiseRequest(mech, 5, t, state)), ledger=ledger).noise_state


def test_a_ledger_with_correlated_noise_verifies_and_says_what_it_is(tmp_path):
    mech, run = private(), tmp_path / "run"
    ledger, state = opened(run, mech), mech.privacy.noise.start(torch.zeros(1))
    states = [state]
    for t in range(5):
        states.append(released(mech, t, states[-1], ledger))
    checkpoint(run, 5, ledger)
    assert verify(run).releases == 5
    account = open_account(run)
    assert account.spent == Spent({Event(2.0, 0.08): 2})
    assert account.header.noise_mechanism.entries == mech.privacy.noise.matrix.rows[0]
    assert "every 4th of them, with probability 0.08" in statement(account)
    assert claim_at(account, 40, 4000).spent.events == {Event(4.0, 0.04): 2}
    assert claim_at(account, 40, 4000, 9).spent.events == {Event(4.0, 0.04): 3}
    # A resumed run that computes the same sum is not charged again; another sum is refused, for the noise is the same.
    resumed = opened(run, mech, ledger.mark)
    released(mech, 4, NoiseState(dict(states[4].vectors)), resumed)
    assert resumed.releases == 5
    with pytest.raises(PrivacyError, match="Step 4 was released before a kill"):
        released(mech, 4, states[4], resumed, value=7)
    lines = (run / "ledger.jsonl").read_text().splitlines()
    assert '"entries"' in lines[0]


def test_a_secure_step_that_is_done_again_starts_afresh_and_costs_one_more_turn(tmp_path):
    mech, run = private("secure"), tmp_path / "run"
    population = PopulationLedger(tmp_path / "ledger", None)
    header = header_of(mech, population_ledger=population.id)
    run.mkdir()
    ledger = Ledger(run / LEDGER_FILE, header, None, population=population)
    states = [mech.privacy.noise.start(torch.zeros(1))]
    for t in range(3):
        states.append(released(mech, t, states[-1], ledger))
    again = released(mech, 2, states[2], ledger)  # killed after the release, before the checkpoint
    assert len(again.vectors["keys"]) == 1  # it has forgotten the steps before
    after = released(mech, 3, again, ledger)
    assert len(after.vectors["keys"]) == 2
    assert ledger.spent.events == {Event(2.0, 0.08): 2}  # ceil(4 / 4) and one more
    with pytest.raises(PrivacyError, match="has just released the same step"):
        ledger.charge(3, 0, "another", first=True)
    assert ledger.releases == 5


def test_a_budget_ends_a_run_before_the_first_turn_that_it_does_not_cover(tmp_path):
    two_turns = pld({Event(2.0, 0.08): 2}, 1e-9).epsilon
    mech = private(budget=Budget(epsilon=two_turns * 1.3))
    ledger, state = opened(tmp_path / "run", mech), mech.privacy.noise.start(torch.zeros(1))
    t = 0
    while ledger.may_release(t):
        state = released(mech, t, state, ledger)
        t += 1
    assert t % 4 == 0
    assert 8 <= t <= 16


def test_plans_by_bands_keep_epsilon_and_compare_by_prefix_sums():
    given = Plan(population=20_000, cohort_size=1000, sigma_dp=None, central_steps=60, epsilon=8.0, target_delta=1e-5)
    one, eight = correlated_plans(given, "rdp", (1, 8))
    assert one.plan.sigma_dp == pytest.approx(solve(given, "rdp").sigma_dp, rel=1e-4)
    assert eight.epsilon <= 8.0
    found = claim_for(
        sigma_dp=eight.plan.sigma_dp,
        cohort_size=1000,
        population=20_000,
        central_steps=60,
        target_delta=1e-5,
        noise=Correlated(bands=8),
    )
    assert found.accounted.rdp.epsilon == pytest.approx(8.0, rel=1e-3)
    assert 0.6 < eight.like / one.like < 0.8
    assert eight.like == pytest.approx(eight.plan.sigma_dp * 2.606129 / 5.522681, rel=1e-5)
    back = Plan(
        population=20_000, cohort_size=None, sigma_dp=eight.like, central_steps=60, epsilon=8.0, target_delta=1e-5
    )
    (same,) = correlated_plans(back, "rdp", (8,))
    assert same.plan.cohort_size == pytest.approx(1000, abs=2)
    # At the paper's sizes, independent noise of this size takes 33.0 million users.
    paper = Plan(
        population=11_605_793,
        cohort_size=204_800,
        sigma_dp=3e-6 / 0.269821202574832,
        central_steps=2000,
        epsilon=None,
        sampling="cyclic",
        noise=Correlated(bands=16, steps=2000),
    )
    assert solve(paper, "pld").epsilon == pytest.approx(10.0, rel=1e-5)
    with pytest.raises(ConfigError, match="number of steps"):
        correlated_plans(Plan(population=10, cohort_size=1, sigma_dp=1, central_steps=None, epsilon=1.0), "rdp")
