"""What a server accepts from a client: exactly what clipping makes of a delta, signed, for this task."""

import hashlib
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.deploy.lying import LIES
from sottovoce.deploy.messages import (
    PROTOCOL,
    BadMessage,
    TaskHeader,
    decode_update,
    encode_update,
    read_task,
    read_update_header,
    sign,
    signed_update,
)
from sottovoce.deploy.update_checks import REASONS, Refused, checked_update, require_clipped, sum_of_squares
from sottovoce.model.partition import make_partition
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

SIZES = (1, 7, 40, 100)
CLIPPINGS = ("global", "uniform", "dim", "root", "adaptive", "adaptive_global")
KEY = Ed25519PrivateKey.generate()


def mechanism(clipping="dim", rule="clip"):
    privacy = Privacy(clip_norm=0.3, clipping=clipping, sigma_dp=0.001, rule=rule)
    layers = make_partition([f"layer{number}" for number in range(len(SIZES))], SIZES, "tensor")
    return Mechanism(privacy, Participation(population=100, cohort_size=10), layers)


def clipped(delta, mechanism):
    total = torch.zeros(sum(mechanism.summed.sizes), dtype=torch.int64)
    add_clipped_(total, delta, WEIGHTS, mechanism, mechanism.require_range(1))
    return total.numpy()


def task(**changes):
    theta = hashlib.sha256(b"").hexdigest()
    header = {"run": "r", "step": 3, "user": "ann", "nonce": "n", "theta": theta, "languages": ("en",), "settings": {}}
    return TaskHeader(protocol=PROTOCOL, **header | changes)


@pytest.mark.parametrize(("clipping", "rule"), [*((name, "clip") for name in CLIPPINGS), ("dim", "normalize")])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1e-30, 1e-3, 0.3, 1.0, 1e20]))
def test_whatever_clipping_makes_is_accepted_and_a_little_more_is_not(clipping, rule, seed, size):
    rules = mechanism(clipping, rule)
    delta = torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(seed)) * size
    update = clipped(delta, rules)
    require_clipped(update, rules)
    longer = update.copy()
    longer[: sum(SIZES)] += np.where(longer[: sum(SIZES)] < 0, -1, 1) * 2**34
    if size >= 1:  # clipping was at work, so there is no room
        with pytest.raises(Refused):
            require_clipped(longer, rules)


def test_counts_must_have_the_one_size_that_the_accounting_assumes():
    rules = mechanism("adaptive")
    update = clipped(torch.randn(sum(SIZES)), rules)
    update[-1] *= 2
    with pytest.raises(Refused, match="count"):
        require_clipped(update, rules)


@pytest.mark.parametrize("lie", [name for name, (_, reason) in LIES.items() if reason])
def test_every_lie_is_refused_for_its_own_reason(lie):
    rules, asked = mechanism(), task()
    honest = signed_update(asked, clipped(torch.randn(sum(SIZES)), rules), KEY)
    assert checked_update(honest, asked, KEY.public_key(), rules).dtype == torch.int64
    tell, reason = LIES[lie]
    with pytest.raises(Refused, match=REASONS[reason]):
        checked_update(tell(asked, honest, KEY), asked, KEY.public_key(), rules)


def test_a_signed_header_without_an_update_is_refused():
    asked = task()
    honest = read_update_header(signed_update(asked, np.zeros(1, np.int64), KEY))
    header = honest.model_copy(update={"digest": hashlib.sha256(b"").hexdigest()})
    for parts in ({}, {"update": b""}):
        with pytest.raises(Refused, match=REASONS["wrong shape"]):
            checked_update(replace(sign(header, b"", KEY), parts=parts), asked, KEY.public_key(), mechanism())


@given(st.lists(st.integers(-(2**61), 2**61), max_size=20))
def test_integers_survive_their_bytes(values):
    update = np.array(values, np.int64)
    assert decode_update(encode_update(update), len(values)).tolist() == values
    with pytest.raises(BadMessage):
        decode_update(encode_update(update), len(values) + 1)


@given(st.binary(max_size=40), st.integers(0, 20))
def test_bytes_of_anybody_are_an_update_or_refused(content, size):
    with suppress(BadMessage):
        assert len(decode_update(size.to_bytes(4, "little") + b"\x01" + content, size)) == size


@given(st.lists(st.integers(-(2**39), 2**39), max_size=20))
def test_sums_of_squares_are_exact(values):
    assert sum_of_squares(np.array(values, np.int64)) == sum(value**2 for value in values)


def test_a_damaged_model_is_noticed_by_the_client():
    with pytest.raises(BadMessage, match="damaged"):
        read_task(task(theta="0" * 64).sealed({"theta": b"\0\0\0\0"}))
