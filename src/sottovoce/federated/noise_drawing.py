"""The noise of one step, drawn while users train: a thread of every process draws a part and sends it to the leader.

A process erases its part before the release is broadcast. So only the leader ever holds the noise and the noised sum at
once, and with them the sum without noise.
"""

from collections.abc import Generator
from types import TracebackType

from sottovoce.distributed import Group
from sottovoce.privacy.step_noise import DrawnNoise, NoiseRequest
from sottovoce.processes import Background


class NoiseDrawing:
    """One process' part in the noise of one step. It begins at once and ends with the `with` block."""

    def __init__(self, request: NoiseRequest, group: Group, *, leads: bool) -> None:
        """Begin to draw, shared with the processes of `group`; a process outside it draws only if it leads."""
        self._request, self._group, self._leads = request, group, leads
        self._cuts = request.cuts(group.size)
        self._background = Background(self._draw()) if leads or group.size > 1 else None

    def __enter__(self) -> "NoiseDrawing":
        """Return the drawing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop drawing where the step has failed meanwhile."""
        if self._background is not None:
            self._background.stop()

    def _draw(self) -> Generator[None, None, DrawnNoise | None]:
        start, stop = self._cuts[self._group.rank : self._group.rank + 2]
        part = yield from self._request.draw(start, stop, self._request.size if self._leads else stop - start)
        part.drawn += self._group.parts_to_leader_(part.vector, self._cuts, tag=self._request.t)
        if self._leads:
            return DrawnNoise(self._request, part)
        part.vector.zero_()
        return None

    def collected(self) -> DrawnNoise | None:
        """Wait for all parts and return the noise; None on processes other than the leader.

        An error of the thread is raised here, on the process that it happened on.
        """
        return None if self._background is None else self._background.result()
