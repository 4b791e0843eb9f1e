"""Publishing a run: an export of what its guarantee covers, and of nothing else.

    OUT/model.safetensors     the best model on dev, or the last one
    OUT/ledger.jsonl          every release
    OUT/metrics.jsonl         the public figures of every step
    OUT/statement.md          the privacy statement
    OUT/public_config.json    the public part of the configuration
    OUT/manifest.json         the SHA-256 of each of these files

Promises: a file is exported only if `EXPORTS` names it. A run is refused unless it has a guarantee, its randomness was
secure and `verify` passes. All files are searched for private keys, paths and speakers' names before they get their
final place; OUT appears whole or not at all.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open

from sottovoce.boundary.configured_words import PUBLIC_CONFIG_FILE
from sottovoce.boundary.scan import require_nothing_private
from sottovoce.config import public_part
from sottovoce.errors import DataError, PrivacyError
from sottovoce.files import (
    OWNER_WRITES_FOLDER,
    as_json,
    flush_to_disk,
    only_writer,
    require_free,
    sha256_of,
    write_json,
    written_whole,
)
from sottovoce.privacy.chain import whole_lines
from sottovoce.privacy.claims import Account, open_account, statement
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.privacy.run_files import METRICS_FILE, MODEL_FILE
from sottovoce.reading import open_regular, parse_json, read_bounded
from sottovoce.runs.folder import BEST, LAST, Run
from sottovoce.runs.metrics_log import MetricsLog
from sottovoce.runs.verification import verify
from sottovoce.version import VERSION

MANIFEST_FILE = "manifest.json"
# What a model file may say about itself; none of it depends on the users. A private run writes the bandwidth of its
# data (`training`) only where the store was limited to one on purpose.
_MODEL_METADATA = {"sottovoce": {"model", "languages", "tokens", "features", "training"}}

Which = Literal["best", "last"]
Content = bytes | Path  # of an exported file: its bytes, or the file they are copied from


@dataclass(frozen=True)
class Source:
    """A run to export, and the model that is chosen."""

    run: Run
    account: Account  # under the name that the export has
    which: Which

    @property
    def model(self) -> Path:
        """The chosen model; without a dev set the last one is the best."""
        chosen = self.run.path / self.which
        return (chosen if chosen.exists() else self.run.path / LAST) / MODEL_FILE


def _model(source: Source) -> Content:
    """Return the model, whose metadata must not hold more than the shape of the model and its tokens."""
    path = source.model
    if not path.is_file():
        raise DataError(f"{source.run.path} has no model yet. Publish it after its first checkpoint.")
    try:
        with safe_open(path, "np") as file:
            metadata = {key: set(parse_json(value)) for key, value in (file.metadata() or {}).items()}
    except (SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{path} is not a whole model: {error}. Restore it.") from None
    if metadata.keys() != _MODEL_METADATA.keys() or not metadata["sottovoce"] <= _MODEL_METADATA["sottovoce"]:
        raise PrivacyError(f"{path} holds more than a model: {metadata}. Save it again with `sotto train`.")
    return path


def _metrics(source: Source) -> Content:
    return b"".join(json.dumps(line).encode() + b"\n" for line in MetricsLog(source.run.path).public_lines())


# The list of what may leave: a file that is not named here is not exported.
EXPORTS: dict[str, Callable[[Source], Content]] = {
    MODEL_FILE: _model,
    LEDGER_FILE: lambda source: whole_lines(read_bounded(source.run.path / LEDGER_FILE)),
    METRICS_FILE: _metrics,
    "statement.md": lambda source: statement(source.account).encode(),
    PUBLIC_CONFIG_FILE: lambda source: as_json(public_part(source.run.config.config)),
}


@dataclass(frozen=True)
class Published:
    """What was published of a run."""

    folder: Path
    model: Which
    epsilon: Epsilons
    files: Mapping[str, str]  # the SHA-256 of every file, by its name
    speakers_searched_for: int | None  # how many names the files were searched for; None: the data is not there


def publish(run: Path | str, out: Path | str, *, model: Which = "best") -> Published:
    """Export what the guarantee of a run covers into the new folder `out`.

    Raise PrivacyError where the run has no guarantee, its noise can be subtracted, its ledger does not hold, or
    something private was about to be exported; DataError where `out` exists and is not empty.

    Example: `publish("runs/private", "release").files["model.safetensors"]`
    """
    run, out = Path(run), Path(out)
    _require_place(out, run)
    account = open_account(run)
    _require_publishable(account)
    with only_writer(run):
        verify(run)
        source = Source(Run(run), replace(open_account(run), run=Path(out.absolute().name)), model)
        require_free(out, 2 * source.model.stat().st_size if source.model.is_file() else 0)
        with _appearing_whole(out) as folder:
            write_public_files(source, folder)
            searched = require_nothing_private(folder, source.run)
            files = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
            write_json(folder / MANIFEST_FILE, {"made_by": f"sottovoce {VERSION}", "sha256": files})
    chosen: Which = "best" if source.model.parent.name == BEST else "last"
    return Published(out, chosen, _epsilon(source), {**files, MANIFEST_FILE: sha256_of(out / MANIFEST_FILE)}, searched)


def write_public_files(source: Source, folder: Path) -> None:
    """Write every file that may leave into a folder: the one place where that is decided."""
    for name, content_of in EXPORTS.items():
        content = content_of(source)
        with written_whole(folder / name) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with open_regular(content) as original:
                    shutil.copyfileobj(original, file)


def _epsilon(source: Source) -> Epsilons:
    known = source.run.epsilon
    releases = source.account.content.releases
    return known if known.rdp is not None else Epsilons(releases[-1].epsilon if releases else None)


def _require_publishable(account: Account) -> None:
    header = account.header
    if not header.guaranteed:
        raise PrivacyError(
            f"{account.run} has no privacy guarantee: {header.guarantee.removeprefix('none: ')}. Nothing is published."
        )
    if header.simulated:
        raise PrivacyError(
            f"{account.run} is a simulation: whoever knows its seed can subtract the noise. Nothing is published. "
            "Train with --set randomness.source=secure."
        )


def _require_place(out: Path, run: Path) -> None:
    if out.resolve().is_relative_to(run.resolve()):
        raise DataError(f"{out} is inside the run's folder, which is private. Choose another OUT.")
    if out.resolve() == Path.cwd():
        raise DataError(f"{out} is the current folder, which cannot be replaced. Choose another OUT.")
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise DataError(f"{out} exists and is not an empty folder. Choose another OUT.")


@contextmanager
def _appearing_whole(out: Path) -> Iterator[Path]:
    """Make a folder beside `out` that gets its name when the block ends, and disappears where it raises an error."""
    parent = out.absolute().parent
    if not parent.is_dir():
        raise DataError(f"{parent} is not a folder. Choose another OUT.")
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=parent))
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.chmod(OWNER_WRITES_FOLDER)  # it was private until now
        temporary.rename(out)
        flush_to_disk(parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
