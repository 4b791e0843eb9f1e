"""The simulated hand-out rules: small cases by hand, bounds that no rule can break, and the engine's own shares."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.federated.process_aggregator import share_out

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "scaling"))
from hand_out import common_queue, dealt, fixed_shares, guided, longest_first, one_by_one

COSTS = st.lists(st.floats(0.001, 1e4), min_size=1, max_size=40).map(np.array)
WORKERS = st.integers(1, 12)


def queue(costs, workers, fetch_seconds=0.0, chunk=one_by_one, paces=None):
    order = np.arange(len(costs))
    return common_queue(order, np.array(costs), workers, fetch_seconds=fetch_seconds, chunk=chunk, paces=paces)


def test_a_queue_with_the_longest_user_first_is_even():
    outcome = queue([3.0, 1.0, 1.0, 1.0], 2)  # one worker has 3, the other 1 + 1 + 1
    assert (outcome.seconds, outcome.ideal, outcome.idle) == (3.0, 3.0, 0.0)


def test_a_queue_with_the_longest_user_last_waits_for_it():
    outcome = queue([1.0, 1.0, 1.0, 3.0], 2)  # free at 1 and 1; the third ends at 2, the long one begins at 1
    assert outcome.seconds == 4.0
    assert outcome.idle == 1 - 3.0 / 4.0


def test_every_fetch_takes_its_time():
    assert queue([3.0, 1.0, 1.0, 1.0], 2, fetch_seconds=0.5).seconds == 4.5  # three fetches of 0.5 and 1 s each
    assert queue([2.0, 2.0], 1, fetch_seconds=0.25).seconds == 4.5


def test_guided_pieces_become_smaller():
    assert [guided(waiting, 2) for waiting in (8, 6, 4, 3, 1)] == [2, 1, 1, 1, 1]
    # Pieces of 2, 1, 1, 1, 1, 1, 1: both workers end at 4, with 3 and 4 fetches.
    outcome = queue([1.0] * 8, 2, fetch_seconds=0.1, chunk=guided)
    assert outcome.seconds == pytest.approx(4.4)


def test_a_faster_worker_takes_more_from_a_queue_and_ends_sooner_with_a_fixed_share():
    paces = np.array([1.0, 3.0])
    assert queue([1.0] * 4, 2, paces=paces).seconds == 1.0  # three users on the fast worker
    shares = [np.array([0, 1]), np.array([2, 3])]
    assert fixed_shares(shares, np.ones(4), paces).seconds == 2.0


def test_an_empty_cohort_takes_no_time():
    nobody = np.zeros(0)
    assert common_queue(nobody.astype(np.int64), nobody, 4, fetch_seconds=1.0).seconds == 0.0
    assert fixed_shares(longest_first(nobody, 4), nobody).idle == 0.0


@given(st.lists(st.integers(0, 10**6), max_size=60), WORKERS)
def test_the_engines_rule_has_the_loads_of_share_out(costs, workers):
    shares = share_out(costs, workers)
    outcome = fixed_shares(longest_first(np.array(costs, dtype=np.float64), workers), np.array(costs, dtype=np.float64))
    assert outcome.seconds == max(sum(costs[place] for place in share) for share in shares)


@given(COSTS, WORKERS)
def test_no_rule_is_faster_than_the_longest_user_or_an_even_division(costs, workers):
    rng = np.random.default_rng(0)
    order = rng.permutation(len(costs))
    outcomes = [
        fixed_shares(longest_first(costs, workers), costs),
        fixed_shares(dealt(len(costs), workers, rng), costs),
        common_queue(order, costs, workers, fetch_seconds=0.0),
        common_queue(order, costs, workers, fetch_seconds=0.01, chunk=guided),
    ]
    for outcome in outcomes:
        assert outcome.seconds >= max(costs.max(), costs.sum() / workers) * (1 - 1e-9)
        assert -1e-9 <= outcome.idle < 1


@given(COSTS, WORKERS)
def test_a_queue_without_latency_keeps_grahams_bound(costs, workers):
    outcome = common_queue(np.arange(len(costs)), costs, workers, fetch_seconds=0.0)
    assert outcome.seconds <= (costs.sum() / workers + (1 - 1 / workers) * costs.max()) * (1 + 1e-9)


@given(st.integers(0, 50), WORKERS)
def test_dealt_shares_are_a_division_of_the_cohort_into_equal_numbers(users, workers):
    shares = dealt(users, workers, np.random.default_rng(1))
    assert sorted(np.concatenate(shares).tolist()) == list(range(users))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
