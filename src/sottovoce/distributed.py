"""A group of processes that compute together: alone, on N workers of this machine (`workers.py`), or under torchrun.

A `Group` is a process's view of the others. Guarantee: every rank gets the same bits from `sum_`.
"""

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from sottovoce.errors import SottoError
from sottovoce.processes import die_with_parent, under_torchrun
from sottovoce.randomness import fill_secure_

Result = TypeVar("Result")

_FEW = 4  # processes: the leader can hear the others in turn
_PIECE = 1 << 20  # coordinates of one message
_SUM_TAG = 2**31 - 1  # no other message has it
_LONGEST_MESSAGE = 1 << 31  # bytes
_NO_MESSAGE = "Another process of this run has sent something else than a message. Run the same command again."


class LostPeerError(SottoError):
    """Another process of the group has ended before the work was done."""


@contextlib.contextmanager
def _together() -> Iterator[None]:
    """Run a collective; if it fails, a peer has ended."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise LostPeerError(f"Another process of this run has ended ({reason}). Run the same command again.") from None


@contextlib.contextmanager
def _meeting() -> Iterator[None]:
    """Let the processes meet; if they do not, the network is the cause: a port that is taken, an address, a wall."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise SottoError(
            f"The processes of this run cannot meet ({reason}). Give torchrun another --master-port or --rdzv-endpoint."
        ) from None


@dataclass(frozen=True)
class Group:
    """One process among `size`; only rank 0 writes files and prints messages."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints messages."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            with _together():
                dist.all_reduce(tensor)
        return tensor

    def sum_to_leader_(self, tensor: Tensor) -> None:
        """Replace the leader's int64 tensor by the sum over all processes; the others' are void afterwards.

        On CPUs no other process can read more than its own part: a few processes send theirs straight to the leader;
        among many the sum passes through all of them, so the leader hides its own part behind uniform random bits,
        modulo 2^64, and takes them away at the end. GPUs leave the sum to NCCL, which adds it up in its own buffers.
        """
        if self.size == 1:
            return
        if tensor.device.type != "cpu":
            with _together():
                dist.reduce(tensor, dst=0)
        elif self.size <= _FEW:
            self._add_on_leader_(tensor)
        else:
            self._pass_round_(tensor)

    def _add_on_leader_(self, tensor: Tensor) -> None:
        """Let every process send its tensor to the leader, in pieces, which the leader adds up."""
        pieces = torch.split(tensor.view(-1), _PIECE)
        if not self.leads:
            for piece in pieces:
                with _together():
                    dist.send(piece, dst=0, tag=_SUM_TAG)
            return
        room = torch.empty_like(pieces[0])
        for rank in range(1, self.size):
            for piece in pieces:
                piece.add_(_received(room[: len(piece)], rank))

    def _pass_round_(self, tensor: Tensor) -> None:
        """Pass the leader's masked tensor round, in pieces; every process adds its own. All send at the same time.

        Gloo's own reduction begins anywhere, so it would show other processes partial sums without the mask.
        """
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        pieces = torch.split(tensor.view(-1), _PIECE)
        room = torch.empty_like(pieces[0])
        flying: deque[tuple[Tensor, Tensor | None, dist.Work]] = deque()  # pieces, the leader's masks, messages

        def land() -> None:
            piece, mask, message = flying.popleft()
            with _together():
                message.wait()
            if mask is not None:  # the piece comes back to the leader
                _received(piece, before).sub_(mask)

        for piece in pieces:
            mask = _random_bits_like(piece) if self.leads else None
            piece.add_(_received(room[: len(piece)], before) if mask is None else mask)
            flying.append((piece, mask, _sending(piece, after)))
            if len(flying) > self.size:
                land()
        while flying:
            land()

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by the leader's."""
        if self.size > 1:
            with _together():
                dist.broadcast(tensor, src=0)
        return tensor

    def gather_rows(self, vector: Tensor) -> Tensor:
        """Return the vectors of all processes, which have one length and lie on the CPU, as rows in order of rank."""
        if self.size == 1:
            return vector[None]
        rows = [torch.empty_like(vector) for _ in range(self.size)]
        with _together():
            dist.all_gather(rows, vector)
        return torch.stack(rows)

    def parts_to_leader_(self, vector: Tensor, cuts: Sequence[int], tag: int) -> int:
        """Fill the leader's vector from cut r to cut r + 1 with the vector of process r; return how much was filled.

        The vectors lie on the CPU. The leader's own part is left as it is. A thread may call this beside other
        collectives: messages find each other by their `tag`, a number that no other message has at that time.
        """
        received = 0
        for rank, (start, stop) in enumerate(itertools.pairwise(cuts)):
            if rank == 0 or start == stop or self.rank not in (0, rank):
                continue
            with _together():
                if self.leads:
                    dist.recv(vector[start:stop], src=rank, tag=tag)
                    received += stop - start
                else:
                    dist.send(vector, dst=0, tag=tag)
        return received

    def gather(self, item: Result, kind: Any = None) -> list[Result]:
        """Return every process' item, in the order of ranks.

        `kind` is the type of the items, by default that of this process' own: numbers, texts, lists of them,
        dataclasses and models of pydantic. They travel as JSON, which is data whoever sends it; floats keep every
        bit, but those that are not finite become None.
        """
        if self.size == 1:
            return [item]
        reader = TypeAdapter(type(item) if kind is None else kind)
        return [_read_message(reader, text) for text in self._gather_bytes(reader.dump_json(item))]

    def _gather_bytes(self, text: bytes) -> list[bytes]:
        """Return every process' bytes, in the order of ranks."""
        lengths = self.gather_rows(torch.tensor([len(text)])).view(-1).tolist()
        if not all(0 <= length <= _LONGEST_MESSAGE for length in lengths):
            raise LostPeerError(_NO_MESSAGE)
        room = torch.zeros(max(lengths), dtype=torch.uint8)
        room[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        return [row[:length].numpy().tobytes() for row, length in zip(self.gather_rows(room), lengths, strict=True)]

    def from_leader(self, item: Result, kind: Any = None) -> Result:
        """Return the item of rank 0; see `gather`."""
        return self.gather(item, kind)[0]

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            with _together():
                dist.barrier()


@contextlib.contextmanager
def joined_group() -> Iterator[Group]:
    """Yield the group of the processes that torchrun started; without torchrun, a group of one."""
    if not under_torchrun():
        yield Group()
        return
    die_with_parent(os.getppid())
    _choose_gpu(int(os.environ["LOCAL_RANK"]))
    with _meeting():
        dist.init_process_group(_backend())
    group = Group(dist.get_rank(), dist.get_world_size())
    yield group
    group.barrier()


@contextlib.contextmanager
def meeting_group(rank: int, size: int, place: Path) -> Iterator[Group]:
    """Yield the group of `size` processes of this machine, which meet in the file `place`."""
    _choose_gpu(rank)
    if size == 1:
        yield Group()
        return
    with _meeting():
        dist.init_process_group(_backend(), init_method=f"file://{place}", rank=rank, world_size=size)
    group = Group(rank, size)
    yield group
    group.barrier()


def _read_message(reader: TypeAdapter[Any], text: bytes) -> Any:
    try:
        return reader.validate_json(text)
    except ValidationError:
        raise LostPeerError(_NO_MESSAGE) from None


def _received(room: Tensor, src: int) -> Tensor:
    """Fill a tensor with the next piece of a sum from another process."""
    with _together():
        dist.recv(room, src=src, tag=_SUM_TAG)
    return room


def _sending(piece: Tensor, dst: int) -> dist.Work:
    """Begin to send a piece of a sum, which must not change until the message has been waited for."""
    with _together():
        message = dist.isend(piece, dst=dst, tag=_SUM_TAG)
    if message is None:
        raise ValueError("This process does not belong to the group.")
    return message


def _random_bits_like(tensor: Tensor) -> Tensor:
    bits = torch.empty(tensor.shape, dtype=tensor.dtype)
    fill_secure_(bits.numpy().reshape(-1).view("u1"))
    return bits


def _backend() -> str:
    """Return the backend: gloo for tensors on the CPU, such as flags, and NCCL for tensors on a GPU."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _choose_gpu(local_rank: int) -> None:
    """Give every process of a machine its own GPU, if the machine has GPUs."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
