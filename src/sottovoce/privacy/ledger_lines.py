"""The lines of a ledger after its header, one class per kind: the class writes the line and reads it again.

    {"release": 3, "step": 2, "epsilon": ..., "aggregate": ...}                Release
    {"saved": 3, "model": ..., "state": ...}                                   Saved: a checkpoint, with hashes
    {"now": {"code": ...}}                                                     Resumption, with other code or settings
    {"finished": 20, "releases": 20, "epsilon_rdp": ..., "epsilon_pld": ...}   RunEnd

A line that lacks a key, or has a value of the wrong type, is a PrivacyError with the number of the line. A line of an
unknown kind is one, too: it could be a charge. Additional keys are ignored, so that ledgers of later versions can be
read; the chain of hashes covers them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sottovoce.errors import PrivacyError
from sottovoce.open_union import unknown_kind

Document = Mapping[str, Any]  # a line as JSON has it
_Line = TypeVar("_Line", bound=BaseModel)


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    def line(self) -> dict[str, Any]:
        """Return the line as it is written."""
        return self.model_dump()


class Release(_Entry):
    """One release, charged before anything depends on it. The order of the fields is the order in the file."""

    release: int = Field(ge=1)  # its number
    step: int = Field(ge=0)
    epsilon: float | None  # of all releases so far, by RDP; None without a guarantee
    aggregate: str  # the hash of the noised sum


class Saved(_Entry):
    """A checkpoint after `saved` steps, written down before it appears, with the SHA-256 of its files."""

    saved: int = Field(ge=0)
    model: str
    state: str  # of the optimizer


class Changes(_Entry):
    """The values of a header that may differ when a run resumes; None for those that stay the same."""

    code: str | None = None
    config: str | None = None
    seed_model: str | None = None

    def line(self) -> dict[str, str]:
        """Return the values that changed."""
        return self.model_dump(exclude_none=True)


class Resumption(_Entry):
    """The run resumed with another code, configuration or seed model."""

    now: Changes

    def line(self) -> dict[str, Any]:
        """Return the line as it is written."""
        return {"now": self.now.line()}


class RunEnd(_Entry):
    """The run ended after `finished` steps and has spent this."""

    finished: int = Field(ge=0)
    releases: int = Field(ge=0)
    epsilon_rdp: float | None
    epsilon_pld: float | None


Entry = Release | Saved | Resumption | RunEnd
_KINDS: Mapping[str, type[Entry]] = {"release": Release, "saved": Saved, "now": Resumption, "finished": RunEnd}


def read_entry(document: Document, path: Path, number: int) -> Entry:
    """Return a line after the header; raise PrivacyError with its number where it is damaged."""
    kinds = [kind for key, kind in _KINDS.items() if key in document]
    if len(kinds) != 1:
        raise PrivacyError(f"{path}: line {number} is of no known kind: it could be a charge. Restore the ledger.")
    return read_line(kinds[0], document, f"{path}: line {number}")


def read_line(kind: type[_Line], document: Document, where: str) -> _Line:
    """Return a line of one kind.

    Raise PrivacyError where a key is missing, has a value of the wrong type, or names a kind that is not imported.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        if (unknown := unknown_kind(error)) is not None:
            raise PrivacyError(f"{where}: {unknown}.") from None
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise PrivacyError(f"{where} is damaged at {place}. Restore the ledger.") from None
