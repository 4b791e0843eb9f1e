import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.randomness import fill_secure_, rank, stream


def test_a_stream_is_fixed_by_its_names_forever():
    assert stream(1, "cohort", 3, "ann").integers(1000, size=5).tolist() == [593, 719, 624, 476, 490]
    assert rank(0, "split", ["ann", "bob", "cat", "dan"]) == ["cat", "dan", "bob", "ann"]


@given(
    st.lists(st.one_of(st.integers(), st.text()), max_size=4), st.lists(st.one_of(st.integers(), st.text()), max_size=4)
)
def test_different_keys_give_different_streams(one, other):
    same = stream(0, "x", *one).random(4).tolist() == stream(0, "x", *other).random(4).tolist()
    assert same == ([(type(k), k) for k in one] == [(type(k), k) for k in other])


def test_a_number_and_its_text_are_different_keys():
    assert stream(0, "x", 1).random() != stream(0, "x", "1").random()
    assert stream(0, "x", "ab", "c").random() != stream(0, "x", "a", "bc").random()


def test_streams_are_uncorrelated():
    one, other = stream(0, "noise", 1).standard_normal(100_000), stream(0, "noise", 2).standard_normal(100_000)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.015


@given(st.sets(st.text(min_size=1), min_size=2, max_size=30), st.integers(0, 2**40))
def test_rank_ignores_input_order_and_nests(items, seed):
    order = rank(seed, "split", sorted(items))
    assert order == rank(seed, "split", sorted(items, reverse=True))
    fewer = set(list(order)[:-1])
    assert rank(seed, "split", fewer) == [item for item in order if item in fewer]


def test_a_number_from_an_array_is_the_same_key():
    assert stream(0, "x", np.int64(5)).random() == stream(0, "x", 5).random() != stream(0, "x", "5").random()
    with pytest.raises(TypeError):
        stream(0, "x", 5.0)


def test_every_secure_byte_is_filled():
    octets = np.zeros(2 * 2**20 + 3, dtype=np.uint8)
    fill_secure_(octets)
    for part in (octets[: 2**20], octets[2**20 : 2**21]):
        assert np.bincount(part, minlength=256) / len(part) == pytest.approx(1 / 256, rel=0.1)
    tails = set()
    for _ in range(3):
        fill_secure_(octets)
        tails.add(bytes(octets[-3:]))
    assert len(tails) > 1
