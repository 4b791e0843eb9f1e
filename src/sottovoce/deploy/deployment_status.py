"""How a deployment is doing, read from its files: for the operator only."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography import x509

from sottovoce.deploy.contributions import Contributions, read_contributions
from sottovoce.deploy.enrolment import Enrolment
from sottovoce.deploy.keys import SERVER_CERT
from sottovoce.errors import DataError
from sottovoce.files import is_being_written
from sottovoce.reading import read_bounded
from sottovoce.runs.folder import Run

Progress = Literal["not begun", "going on", "stopped", "finished"]


@dataclass(frozen=True)
class DeploymentStatus:
    """The users of a server and, where a run was asked for, its progress."""

    enrolled: list[str]
    waiting: list[str]  # for their token to be used
    certificate_until: datetime.datetime
    progress: Progress | None = None  # of the run, where one was asked for
    step: int | None = None  # of the last checkpoint
    last: Contributions | None = None

    def document(self) -> dict[str, Any]:
        """Return the status for other programs."""
        last = self.last
        return {
            "enrolled": self.enrolled,
            "waiting": self.waiting,
            "certificate_until": self.certificate_until.isoformat(),
            "run": self.progress,
            "step": self.step,
            "last": None
            if last is None
            else {
                "step": last.step,
                "contributed": list(last.contributed),
                "refused": dict(last.refused),
                "silent": list(last.silent),
                "bytes_per_update": last.bytes_per_update,
            },
        }

    def lines(self) -> list[str]:
        """Return the status for people."""
        lines = [
            f"enrolled      {len(self.enrolled)}: {', '.join(self.enrolled) or 'nobody'}",
            f"tokens unused {len(self.waiting)}: {', '.join(self.waiting) or 'none'}",
            f"certificate   until {self.certificate_until:%F}",
        ]
        if self.progress is not None:
            lines.append(f"run           {self.progress}" + (f", step {self.step} saved" if self.step else ""))
        if self.last is not None:
            refused = "".join(f", {user} refused ({reason})" for user, reason in self.last.refused.items())
            contributed, silent = len(self.last.contributed), len(self.last.silent)
            lines.append(f"last step     {self.last.step + 1}: {contributed} contributed, {silent} silent{refused}")
            if self.last.bytes_per_update is not None:
                lines.append(f"an update     {self.last.bytes_per_update:,} bytes on average")
        return lines


def status_of(folder: Path, run: Path | None) -> DeploymentStatus:
    """Read the status of a server and perhaps one of its runs."""
    if not (folder / SERVER_CERT).exists():
        raise DataError(f"{folder} is no server's folder. Make one with `sotto deploy keys {folder}`.")
    try:
        certificate = x509.load_pem_x509_certificate(read_bounded(folder / SERVER_CERT))
    except ValueError:
        raise DataError(f"{folder / SERVER_CERT} is damaged. Remove it and its key, and make them again.") from None
    enrolment = Enrolment(folder)
    if run is None:
        return DeploymentStatus(list(enrolment.users), enrolment.waiting, certificate.not_valid_after_utc)
    found, answers = Run(run), read_contributions(run)
    checkpoint = found.checkpoint
    return DeploymentStatus(
        list(enrolment.users),
        enrolment.waiting,
        certificate.not_valid_after_utc,
        progress=_progress(found),
        step=None if checkpoint is None else checkpoint.step,
        last=answers[max(answers)] if answers else None,
    )


def _progress(run: Run) -> Progress:
    if not run.path.exists():
        return "not begun"
    if is_being_written(run.path):
        return "going on"
    return "stopped" if run.result is None else "finished"
