"""Operations by parts give what they give on whole vectors; freed memory is kept only where the C library can."""

import ctypes

import pytest
import torch

from sottovoce import memory
from sottovoce.model.partition import make_partition
from sottovoce.optim import Lamb
from sottovoce.privacy.clipping import add_clipped_
from sottovoce.privacy.mechanism import WEIGHTS, Mechanism
from sottovoce.privacy.privacy_options import Participation, Privacy

SIZES = [3, 1, 17, 0, 5, 14]  # with parts of 5: a tensor of several parts, an empty one, and parts of several tensors
PARTITION = make_partition([f"w{place}" for place in range(len(SIZES))], SIZES, "tensor")
MECHANISM = Mechanism(
    Privacy(clip_norm=0.5, clipping="dim", sigma_dp=1.0), Participation(population=50, cohort_size=5), PARTITION
)


def results():
    """Return norms, a clipped sum, its average and a step of LAMB."""
    drawn = torch.Generator().manual_seed(1)
    vector, theta = torch.randn(40, generator=drawn), torch.randn(40, generator=drawn)
    total = torch.arange(40)
    norms, _ = add_clipped_(total, vector, WEIGHTS, MECHANISM, 2**38)
    server = Lamb()
    state = server.start(theta)
    for _ in range(2):
        server.step(theta, vector, state, 0.1, PARTITION)
    return norms, total, MECHANISM.average(total), theta


def test_parts_give_what_the_whole_gives(monkeypatch):
    whole = results()
    monkeypatch.setattr(memory, "_IN_CACHE", 5)
    assert len(PARTITION.chunks(torch.device("cpu"))) == 8
    for ours, expected in zip(results(), whole, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=0)
    norms, total, average, _ = results()
    by_hand = [
        piece.double().norm()
        for piece in torch.split(torch.randn(40, generator=torch.Generator().manual_seed(1)), SIZES)
    ]
    assert norms.tolist() == pytest.approx(torch.stack(by_hand).tolist(), rel=1e-12)
    assert average.tolist() == pytest.approx(
        (total.double() * (MECHANISM.resolution / MECHANISM.divisor)).tolist(), rel=1e-6
    )


class CLibrary:
    """A C library whose mallopt accepts thresholds up to a limit, and notes them."""

    def __init__(self, limit):
        self.limit, self.accepted = limit, []

    def mallopt(self, option, value):
        if option == -3 and value > self.limit:
            return 0
        self.accepted.append((option, value))
        return 1


@pytest.mark.parametrize(
    ("limit", "accepted"),
    [
        (2**40, [(-3, 2**30), (-1, 2**31 - 1)]),
        (2**25, [(-3, 2**25), (-1, 2**31 - 1)]),  # an older glibc
        (0, []),  # the second call alone would do harm
    ],
)
def test_freed_memory_is_kept_as_far_as_the_library_allows(monkeypatch, limit, accepted):
    library = CLibrary(limit)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    memory.keep_freed_memory()
    assert library.accepted == accepted


def test_where_there_is_no_such_function_nothing_happens(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    memory.keep_freed_memory()
