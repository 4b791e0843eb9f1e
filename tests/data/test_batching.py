import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.data.batching import Batching, by_length, cut_by_total, cut_with_padding, epoch, load
from sottovoce.randomness import stream

lengths = st.lists(st.integers(1, 6000), min_size=1, max_size=80)


def rows_of(batches):
    return np.sort(np.concatenate([batch.rows for batch in batches]))


def padding_share(batches, frames):
    computed = sum(len(rows) * frames[rows].max() for batch in batches for rows in batch.micro)
    return 1 - sum(frames[batch.rows].sum() for batch in batches) / computed


@given(lengths, st.floats(1, 200), st.floats(0, 1), st.integers(0, 99))
def test_every_utterance_is_in_exactly_one_batch_within_the_budget(frames, seconds, padding, seed):
    frames = np.array(frames, dtype=np.int64)
    rows = np.arange(100, 100 + len(frames))
    batches = epoch(rows, frames, Batching(seconds=seconds, max_padding=padding), stream(seed, "order"))
    assert rows_of(batches).tolist() == rows.tolist()
    for batch in batches:
        assert frames[batch.rows - 100].sum() <= seconds * 100 or len(batch.rows) == 1
        assert (np.diff(frames[batch.rows - 100]) <= 0).all()  # the longest first
        for micro in batch.micro:
            mine = frames[micro - 100]
            assert len(micro) * mine.max() - mine.sum() <= padding * len(micro) * mine.max() + 1e-6


@given(lengths, st.floats(0.01, 300), st.integers(0, 99))
def test_one_round_is_bounded(frames, limit, seed):
    frames = np.array(frames, dtype=np.int64)
    options = Batching(max_seconds_per_user=limit)
    chosen = rows_of(epoch(np.arange(len(frames)), frames, options, stream(seed, "order")))
    assert len(chosen) >= 1
    assert frames[chosen].sum() <= limit * 100 or len(chosen) == 1
    if frames.sum() <= limit * 100:
        assert len(chosen) == len(frames)


def drawn(rows, frames, options, *name):
    return [batch.rows.tolist() for batch in epoch(rows, frames, options, stream(0, "order", *name))]


@given(lengths, st.floats(1, 200), st.none() | st.floats(0.01, 300), st.integers(0, 99))
def test_the_same_stream_gives_the_same_batches(frames, seconds, limit, seed):
    frames, options = np.array(frames), Batching(seconds=seconds, max_seconds_per_user=limit)
    rows = np.arange(len(frames))
    assert drawn(rows, frames, options, seed) == drawn(rows, frames, options, seed)


@given(lengths, st.floats(1, 200), st.integers(0, 10**9))
def test_batches_depend_on_the_own_utterances_only(frames, seconds, first):
    """Wherever a user's rows lie in the store, and so whoever else is in it."""
    frames, rows = np.array(frames), np.arange(len(frames))
    here, there = drawn(rows, frames, Batching(seconds=seconds)), drawn(rows + first, frames, Batching(seconds=seconds))
    assert there == [[row + first for row in batch] for batch in here]


@given(st.lists(st.integers(100, 500), min_size=20, max_size=80), st.integers(0, 99))
def test_every_epoch_has_other_batches(frames, seed):
    frames, rows = np.array(frames), np.arange(len(frames))
    rng = stream(seed, "order")
    first, second = (
        {frozenset(batch.rows.tolist()) for batch in epoch(rows, frames, Batching(seconds=15), rng)} for _ in range(2)
    )
    assert first != second  # not only their order: who shares a batch with whom


def test_all_pairs_of_utterances_share_a_batch_some_day():
    frames, rng, met = np.arange(100, 1300, 100), stream(0, "order"), np.zeros((12, 12))
    for _ in range(300):
        for batch in epoch(np.arange(12), frames, Batching(seconds=30), rng):
            met[np.ix_(batch.rows, batch.rows)] += 1
    assert met.min() > 10  # the longest and the shortest too


def test_utterances_that_fit_into_one_batch_draw_nothing():
    frames, rng = np.array([300, 100, 300, 200]), stream(0, "order")
    for _ in range(2):
        assert [batch.rows.tolist() for batch in epoch(np.arange(4), frames, Batching(seconds=9), rng)] == [
            [0, 2, 3, 1]
        ]
    assert rng.random() == stream(0, "order").random()


@given(st.lists(st.integers(1, 6000), max_size=80), st.floats(1, 20_000))
def test_batches_are_cut_as_late_as_the_budget_allows(frames, budget):
    sizes = {cut_by_total: sum, cut_with_padding: lambda part: len(part) * max(part)}
    for cut, size in sizes.items():
        groups = cut(np.array(frames, dtype=np.int64), budget)
        assert [place for first, last in groups for place in range(first, last)] == list(range(len(frames)))
        for first, last in groups:
            assert last == first + 1 or size(frames[first:last]) <= budget
            assert last == len(frames) or size(frames[first : last + 1]) > budget


@given(lengths, st.floats(1, 200))
def test_batches_by_length_are_fixed_and_the_longest_come_first(frames, seconds):
    frames, rows = np.array(frames), np.arange(len(frames))
    batches = by_length(rows, frames, Batching(seconds=seconds))
    assert np.concatenate([batch.rows for batch in batches]).tolist() == sorted(rows, key=lambda row: -frames[row])
    for batch in batches:
        assert len(batch.rows) == 1 or len(batch.rows) * frames[batch.rows].max() <= seconds * 100


def test_every_utterance_gets_its_turn_under_the_limit():
    frames = np.full(50, 1000)
    options = Batching(max_seconds_per_user=100)
    seen = {
        int(row)
        for step in range(60)
        for row in rows_of(epoch(np.arange(50), frames, options, stream(0, "order", step)))
    }
    assert seen == set(range(50))


def test_an_utterance_longer_than_the_budget_is_a_batch_of_its_own():
    frames = np.array([100, 50_000, 100])
    batches = epoch(np.arange(3), frames, Batching(seconds=10), stream(0, "order"))
    assert [1] in [batch.rows.tolist() for batch in batches]
    assert rows_of(batches).tolist() == [0, 1, 2]


@pytest.mark.parametrize("utterances", [20, 30, 50, 100, 400])
def test_padding_is_below_a_tenth_on_lengths_like_common_voice(utterances):
    """Common Voice clips last about 5.6 s with a deviation of about 1.8 s, from 1 to 15 s."""
    micro, plain = [], []
    for user in range(200):
        rng = stream(0, "lengths", utterances, user)
        frames = np.clip(rng.gamma(9.7, 58, size=utterances), 100, 1500).astype(np.int64)
        rows = np.arange(utterances)
        micro.append(padding_share(epoch(rows, frames, Batching(seconds=120), rng), frames))
        plain.append(padding_share(epoch(rows, frames, Batching(seconds=120, max_padding=1), rng), frames))
    assert max(micro) < 0.10
    assert np.mean(plain) > np.mean(micro)


def test_loading_pads_with_zeros_and_keeps_every_value(make_store):
    store = make_store({"a": 3, "b": 2})
    rows = np.array([4, 0, 2])
    batch = load(store, rows)
    assert batch.features.shape == (3, batch.frames.max(), 80)
    for place, row in enumerate(rows):
        assert (batch.features[place, : batch.frames[place]] == store.features_of(row)).all()
        assert (batch.features[place, batch.frames[place] :] == 0).all()
        assert (batch.targets[place, : batch.target_lengths[place]] == store.tokens_of(row)).all()
        assert (batch.targets[place, batch.target_lengths[place] :] == 0).all()
