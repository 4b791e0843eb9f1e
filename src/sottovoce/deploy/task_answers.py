"""A client's answers to what a server asks: updates, rounds of masked sums, and what it does not answer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.deploy.link import Incoming
from sottovoce.deploy.local_trainer import LocalTrainer
from sottovoce.deploy.masked_answers import MaskedAnswers
from sottovoce.deploy.masking.masking_session import SecureAggregationError
from sottovoce.deploy.messages import Envelope, RoundHeader, TaskHeader, read_round

Tamper = Callable[[TaskHeader, Envelope, Ed25519PrivateKey], Envelope]


@dataclass(frozen=True)
class TaskAnswer:
    """The answer to one task, before it is sent."""

    incoming: Incoming
    answer: Envelope
    line: str = ""  # what to say when it has left
    step: int | None = None  # None where it is no answer

    def told(self, *, sent: bool) -> str:
        """Return the line about it; an empty one where there is nothing to tell."""
        return self.line if sent or self.step is None else f"Step {self.step + 1}: too late."


class TaskAnswers:
    """The users of one client, and all that is answered for them."""

    def __init__(
        self,
        trainer: LocalTrainer,
        signing: Ed25519PrivateKey,
        folder: Path,
        only_masked: bool = False,
        before_round: Callable[[str], None] | None = None,
        tamper: Tamper | None = None,
    ) -> None:
        """Sign with this key, and note masked steps in the folder of the keys (see `ClientOptions` for the rest)."""
        self._trainer, self._signing, self._only_masked = trainer, signing, only_masked
        self._masks = MaskedAnswers(trainer, signing, folder)
        self._before_round, self._tamper = before_round, tamper

    def to(self, incoming: Incoming) -> TaskAnswer:
        """Return the answer to a task. Where there must be none, the step goes on without this client."""
        try:
            header, answer = self._answer(incoming.envelope)
        except SecureAggregationError as error:
            return TaskAnswer(incoming, Envelope(b"{}"), f"Not answered: {error}")
        if isinstance(header, RoundHeader):  # small: nothing to tell
            return TaskAnswer(incoming, answer, step=header.step)
        size, masked = sum(map(len, answer.parts.values())), "masked " * header.masked
        line = f"Step {header.step + 1}: sent the {masked}update of {header.user}, {size:,} bytes."
        return TaskAnswer(incoming, answer, line, header.step)

    def _answer(self, envelope: Envelope) -> tuple[TaskHeader | RoundHeader, Envelope]:
        """Return what a message was, and the answer to it."""
        header = read_round(envelope)
        if header is not None:
            if self._before_round is not None:
                self._before_round(header.phase)
            return header, self._masks.round(header, envelope)
        task = self._trainer.read(envelope)
        if task.masked:
            if self._before_round is not None:
                self._before_round("mask")
            return task, self._masks.mask(task, envelope)
        if self._only_masked:
            raise SecureAggregationError("The server asks for an update without masks, which --only-masked forbids.")
        self._masks.require_new(task.run, task.step, task.user)
        task, update = self._trainer.answer(envelope)
        return task, update if self._tamper is None else self._tamper(task, update, self._signing)
