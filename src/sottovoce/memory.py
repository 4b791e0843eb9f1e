"""Memory on a CPU: operations pass over parts of a vector that stay in the cache, and freed memory is kept.

Reading this module does not load torch.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor

_IN_CACHE = 1 << 15  # coordinates: 256 KB in float64
_ELSEWHERE = 1 << 24  # a GPU wants long vectors; the limit keeps temporary ones small
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>


def part_size(device: torch.device) -> int:
    """Return how many coordinates of a vector several operations should take at once."""
    return _IN_CACHE if device.type == "cpu" else _ELSEWHERE


def parts(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the parts of vectors of one length side by side: views that stay in a CPU's cache."""
    import torch  # noqa: PLC0415 - whoever has vectors has loaded it

    size = part_size(vectors[0].device)
    return zip(*(torch.split(vector, size) for vector in vectors), strict=True)


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, up to 2 GB, instead of returning it to the system.

    Training allocates the same memory in every step. To fetch and clear it anew took 8 % of the time with 50M
    parameters. Where the C library is not glibc, nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    # An older glibc takes at most 32 MB, and the second call alone would make it return everything above 128 KB.
    if mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 1 << 25):
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
