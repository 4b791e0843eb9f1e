"""Workers that draw noise together and leave it in files, for the tests of shared drawing."""

import torch

from own_noise import Cancelling
from sottovoce.distributed import Group
from sottovoce.errors import DataError
from sottovoce.federated.noise_drawing import NoiseDrawing
from sottovoce.model.partition import make_partition
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.noise import Gaussian
from sottovoce.privacy.privacy_options import Participation, Privacy
from sottovoce.privacy.step_noise import PIECE, NoiseRequest

SIZES = (PIECE + 5, 7, 2 * PIECE)
SENT: list[torch.Tensor] = []


def request(kind: str) -> NoiseRequest:
    """Return the noise of step 3: seeded, secure or with a memory."""
    partition = make_partition(["a.weight", "b.weight", "c.weight"], SIZES, "tensor")
    noise = Cancelling() if kind == "memory" else Gaussian()
    privacy = Privacy(clip_norm=0.01, clipping="dim", sigma_dp=0.1, noise=noise)
    source = "secure" if kind == "secure" else "seeded"
    mechanism = Mechanism(privacy, Participation(population=1000, cohort_size=20), partition, source)
    return NoiseRequest(mechanism, 5, 3, noise.start(torch.zeros(sum(SIZES))))


def total_of(noise):
    """Return the noise as a vector."""
    total = torch.zeros(sum(SIZES), dtype=torch.int64)
    noise.add_to_(total, 3)
    return total


class Watched(Group):
    """A group that remembers the vectors that went through it."""

    def parts_to_leader_(self, vector, cuts, tag):
        SENT.append(vector)
        return super().parts_to_leader_(vector, cuts, tag)


def leave_with_the_noise_then_fail(group, folder):
    """Draw three kinds of noise together; the leader writes them, the others what they still hold. Then one fails."""
    group = Watched(group.rank, group.size)
    for kind in ("seeded", "secure", "memory"):
        with NoiseDrawing(request(kind), group, leads=group.leads) as drawing:
            noise = drawing.collected()
        held = SENT[-1] if noise is None else total_of(noise)
        torch.save(held, folder / f"{kind}-{group.rank}.pt")
    if not group.leads:
        Gaussian.draw = fail
    with NoiseDrawing(request("seeded"), group, leads=group.leads) as drawing:
        drawing.collected()


def fail(*_arguments):
    """Fail to draw."""
    raise DataError("No random bits. Try again.")
