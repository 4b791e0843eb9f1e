"""A clipped update in fewer bytes: nothing is lost, one code for each vector, and hostile bytes are refused."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sottovoce.deploy.integer_coding import LARGEST_CODED, IntegerCodingError, decode, encode, most_bytes, typical_bytes
from sottovoce.model.partition import make_partition
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

SIZED = st.one_of(*(st.integers(-(2**bits), 2**bits) for bits in (0, 3, 20, 38, 61)))
VECTORS = arrays(np.int64, st.integers(0, 300), elements=SIZED, fill=st.sampled_from([0, 1, -(2**38)]))


@settings(max_examples=40)
@given(VECTORS)
def test_what_is_encoded_is_decoded_and_never_longer_than_announced(values):
    largest = max(int(np.abs(values).max(initial=1)), 1)
    code = encode(values)
    assert np.array_equal(decode(code, len(values), largest), values)
    assert len(code) <= most_bytes(len(values), largest)


@settings(max_examples=40)
@given(VECTORS, st.data())
def test_changed_bytes_are_refused_or_are_the_one_code_of_another_vector(values, data):
    code = bytearray(encode(values))
    place, kind = data.draw(st.integers(0, len(code) - 1)), data.draw(st.sampled_from(["change", "cut", "add"]))
    if kind == "change":
        code[place] ^= data.draw(st.integers(1, 255))
    else:
        code = code[:place] if kind == "cut" else code + bytes(1 + place)
    try:
        other = decode(bytes(code), len(values), LARGEST_CODED)
    except IntegerCodingError:
        return
    assert kind == "change"
    assert encode(other) == code


def segment(code, unary, low):
    """Return the code of one block, put together by hand; the unary part is a string of bits."""
    packed = np.packbits(np.array(list(unary), dtype=np.uint8)).tobytes()
    return b"\x01" + bytes([code]) + len(packed).to_bytes(4, "little") + packed + low


def test_one_number_by_hand():
    assert encode(np.array([3])) == segment(1, "0000001", b"")  # u = 6, r = 0
    assert encode(np.array([1000, 2])) == segment(4, "0" * 250 + "11", bytes([0b000_100_00]))  # u = 2000 and 4, r = 3


WRONG = {
    "another r": ("shortest code", segment(2, "0001", bytes(1)), 1),
    "bits after the last": ("fill up a byte", segment(4, "0" * 250 + "11", bytes([0b000_100_01])), 2),
    "a byte of zeros in unary": ("as many numbers", segment(1, "0000001" + "0" * 8, b""), 1),
    "more numbers in unary": ("as many numbers", segment(1, "00000011", b""), 1),
    "fewer numbers in unary": ("as many numbers", segment(1, "0000001", b""), 2),
    "bytes after the last": ("bytes are left", segment(1, "0000001", b"\0"), 1),
    "too few bytes": ("ends too soon", segment(4, "0" * 250 + "11", b""), 2),
    "a carry beyond 64 bits": ("larger than", segment(63, "01" * 127 + "000001", bytes(128 * 7 + 96)), 128),
}


@pytest.mark.parametrize("fault", WRONG)
def test_other_codes_of_a_vector_are_refused(fault):
    problem, code, length = WRONG[fault]
    with pytest.raises(IntegerCodingError, match=problem):
        decode(code, length, LARGEST_CODED)


@pytest.mark.parametrize("first", [0, 1, 39, 62, 255])
def test_garbage_takes_no_more_memory_than_its_length_allows(first):
    length = 3 * 2**16
    garbage = bytes([1]) + bytes([first]) * 512 + np.random.default_rng(1).bytes(most_bytes(length, 2**38) - 600)
    tracemalloc.start()
    for data in (garbage, garbage + bytes(10**7), b"", b"\x02" + garbage):
        with pytest.raises(IntegerCodingError):
            decode(data, length, 2**38)
    assert tracemalloc.get_traced_memory()[1] < 40 * length + 2 * 10**7
    tracemalloc.stop()


def test_integers_above_their_range_are_refused():
    values = np.array([5, -17, 3])
    assert np.array_equal(decode(encode(values), 3, 17), values)
    with pytest.raises(IntegerCodingError, match="larger than 16"):
        decode(encode(values), 3, 16)
    with pytest.raises(IntegerCodingError):
        encode(np.array([LARGEST_CODED + 1]))


def test_a_clipped_update_takes_half_of_its_bytes_within_2_percent_of_its_entropy():
    partition = make_partition(["wide", "narrow"], [90_000, 10_000], "tensor")
    privacy = Privacy(clip_norm=0.01, clipping="uniform", sigma_dp=0.1)
    mechanism = Mechanism(privacy, Participation(population=100, cohort_size=10), partition)
    delta = torch.randn(100_000, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
    total = torch.zeros(100_000, dtype=torch.int64)
    add_clipped_(total, delta, WEIGHTS, mechanism, mechanism.require_range(10))
    stds = [2**38 / np.sqrt(2) / np.sqrt(size) for size in partition.sizes]
    entropy = sum(
        size * np.log2(std * np.sqrt(2 * np.pi * np.e)) for size, std in zip(partition.sizes, stds, strict=True)
    )
    code = encode(total.numpy())
    assert np.array_equal(decode(code, 100_000, 2**38), total.numpy())
    assert entropy / 8 <= len(code) <= 1.02 * entropy / 8 <= 0.51 * 8 * 100_000


@pytest.mark.parametrize("length", [1000, 140_000])
def test_the_size_of_the_code_is_known_before(length):
    noise = np.random.default_rng(3).standard_normal(length)
    values = (noise * 2.0**38 / np.linalg.norm(noise)).astype(np.int64)
    assert typical_bytes(length, 2.0**38) == pytest.approx(len(encode(values)), rel=0.005)
