"""Verifying a run's ledger: its chain of hashes, its numbers, its configuration, and the checkpoints and their models.

What `verify` compares:
- the chain of hashes, line by line;
- the header with the configuration in config.json, whose public part must have the hash that the ledger names, and with
  the mechanism that this configuration and the model's own layers give: divisor, sensitivity, z and everything else;
- z, q and what a largest cohort costs once more, from the header alone; with adaptive clipping also
  1/z^2 = 1/z_delta^2 + H/(2 sigma_b)^2;
- every release's number and epsilon, and those at the run's end and in result.json;
- every checkpoint: the ledger's end when it was saved, a charge for each of its steps, and the SHA-256 of its model and
  of the optimizer's state. `last` and `best` are among them.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sottovoce.config import Config, public_hash
from sottovoce.errors import PrivacyError
from sottovoce.files import sha256_of
from sottovoce.model.model_file import model_path
from sottovoce.privacy.accounting import ADD_OR_REMOVE, REPLACE, pld, rdp
from sottovoce.privacy.charges import Charges
from sottovoce.privacy.claims import Account, open_account
from sottovoce.privacy.events import ZERO_OUT
from sottovoce.privacy.ledger import LedgerContent, releases_in
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.ledger_lines import Release, RunEnd, Saved
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.run_files import MODEL_FILE
from sottovoce.privacy.truncation import cut_probability
from sottovoce.runs.documents import Checkpoint, Result, RunConfig
from sottovoce.runs.folder import BEST, CHECKPOINTS, LAST, STATE_FILE

# Of a header, what the configuration and the model alone decide.
_DERIVED = (
    *("guarantee", "adjacency", "target_delta", "population", "cohort_size", "sampling", "sampling_prob", "weight"),
    *(
        "weight_bound",
        "divisor",
        "q_min",
        "clip_norm",
        "clipping",
        "rule",
        "clip_norms",
        "sigma_dp",
        "sensitivity",
        "z",
    ),
    *("noise", "sampler_epsilon", "parameters", "accepted", "adaptive", "cap", "truncation_delta"),
)


@dataclass(frozen=True)
class Verified:
    """The contents of a ledger that was verified."""

    lines: int
    releases: int
    checkpoints: int
    guaranteed: bool
    epsilon: float | None  # by RDP; None without a guarantee, and before the first release


def verify(run: Path) -> Verified:
    """Check the ledger of a run; raise PrivacyError with the first contradiction."""
    return _verify(open_account(run))


def verified_account(run: Path) -> Account:
    """Return the ledger of a run for questions about it, once it was verified."""
    account = open_account(run)
    _verify(account)
    return account


def _verify(account: Account) -> Verified:
    run, path, content = account.run, account.path, account.content
    _verify_header(path, account.header)
    epsilon = _verify_releases(path, account)
    _verify_ends(path, account)
    checkpoints = sorted((run / CHECKPOINTS).glob(f"[0-9]*/{Checkpoint.FILE}"))
    if not checkpoints:
        raise PrivacyError(f"{run} has no checkpoint: there is no model that {path} could be compared with.")
    for file in checkpoints:
        verify_checkpoint(path, file, content)
    verified = {file.parent.resolve() for file in checkpoints}
    for link in (run / LAST, run / BEST):
        if (link.exists() or link.is_symlink()) and link.resolve() not in verified:
            raise PrivacyError(f"{link} is not one of the run's checkpoints. Restore the link.")
    _verify_configuration(account, checkpoints[-1].parent)
    return Verified(content.mark.lines, account.releases, len(checkpoints), account.header.guaranteed, epsilon)


def _verify_configuration(account: Account, checkpoint: Path) -> None:
    """Check that config.json is the configuration of the ledger, and that the mechanism follows from it."""
    run, path, content = account.run, account.path, account.content
    stored = RunConfig.read(run)
    if public_hash(stored.config) != content.config:
        raise PrivacyError(f"{run / RunConfig.FILE} is not the configuration that {path} names: one was changed.")
    try:
        config = stored.completed().config
        mechanism = mechanism_of(Config.model_validate(config), checkpoint)
    except ValidationError:
        raise PrivacyError(
            f"{run / RunConfig.FILE} is not valid in this version. Verify with the one that wrote it."
        ) from None
    header = content.header
    if not mechanism.privacy.noise.stands_for(header.noise_mechanism):
        raise PrivacyError(
            f"{path}: the header says noise_mechanism={header.noise_mechanism}; the configuration gives "
            f"{mechanism.privacy.noise.complete()}."
        )
    derived = LedgerHeader.of(mechanism, unit="", seed_model="", config_hash="")
    for key in _DERIVED:
        stated, value = getattr(header, key), getattr(derived, key)
        if not _agree(stated, value):
            raise PrivacyError(f"{path}: the header says {key}={stated}; the configuration and model give {value}.")


def _agree(one: object, other: object) -> bool:
    """Return whether two values of a header are the same; numbers may differ by rounding errors."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other


def mechanism_of(config: Config, checkpoint: Path) -> Mechanism:
    """Return the mechanism of a run: its configuration's, on the layers of a checkpoint's model."""
    from sottovoce.model.recogniser import saved_partition  # noqa: PLC0415 - loads torch

    options = config.federated
    partition = saved_partition(model_path(checkpoint), options.partition, options.trainable, options.adapters)
    return Mechanism(config.privacy, config.participation, partition, config.randomness.source)


def verify_checkpoint(path: Path, file: Path, content: LedgerContent) -> None:
    """Check that the ledger holds the lines that a checkpoint was saved after, every step before it, and its files."""
    checkpoint = Checkpoint.read(file.parent)
    mark = checkpoint.ledger
    if mark is None:
        raise PrivacyError(f"{file} does not name the ledger.")
    lines = content.mark.lines
    if mark.lines > lines:
        raise PrivacyError(f"{path} has {lines} lines, but {file} was saved after {mark.lines}: it was cut.")
    if not content.holds(mark):
        raise PrivacyError(f"{path} is not the ledger that {file} was saved with: it was changed.")
    before = content.before(mark)
    missing = set(range(checkpoint.step)) - {release.step for release in releases_in(before)}
    if missing:
        raise PrivacyError(f"{file} is after {checkpoint.step} steps, but step {min(missing)} was not charged.")
    saved = [entry for entry in before if isinstance(entry, Saved) and entry.saved == checkpoint.step]
    model, state = file.parent / MODEL_FILE, file.parent / STATE_FILE
    for what, name, hashes in (
        ("model", model, {entry.model for entry in saved}),
        ("state of the optimizer", state, {entry.state for entry in saved}),
    ):
        if not name.is_file() or sha256_of(name) not in hashes:
            raise PrivacyError(f"{name} is not the {what} that {path} names after {checkpoint.step} steps.")


def _verify_header(path: Path, header: LedgerHeader) -> None:
    """Check that z and q follow from what the header says of noise and cohorts."""
    z = header.sigma_dp * header.divisor / (header.weight_bound * header.sensitivity)
    sampling_prob = header.cohort_size / header.population
    if header.adaptive is not None and not math.isclose(header.adaptive.z(header.sensitivity), z, rel_tol=1e-9):
        together = header.adaptive.z(header.sensitivity)
        raise PrivacyError(f"{path}: the noise of deltas and counts gives z={together:g} together; it is {z:g}.")
    for key, stated, value in (("z", header.z, z), ("sampling_prob", header.sampling_prob, sampling_prob)):
        if not math.isclose(stated, value, rel_tol=1e-9):
            raise PrivacyError(f"{path}: the header says {key}={stated:g}; it is {value:g}.")
    cut = 0.0 if header.cap is None else cut_probability(header.population, header.sampling_prob, header.cap)
    if header.guaranteed and header.truncation_delta < cut * (1 - 1e-9):
        raise PrivacyError(f"{path}: the header says truncation_delta={header.truncation_delta:g}; it is {cut:g}.")
    if header.adjacency not in (None, *((REPLACE,) if header.sampling == "fixed" else (ADD_OR_REMOVE, ZERO_OUT))):
        raise PrivacyError(f"{path}: the adjacency does not fit cohorts that are {header.sampling}.")


def _verify_releases(path: Path, account: Account) -> float | None:
    """Check the numbers of the releases and their epsilons; return the last one."""
    epsilon, header, charges = None, account.header, Charges()
    for number, release in enumerate(account.content.releases, 1):
        charges.add(release.step, release.aggregate)
        if release.release != number or len(charges) != number:
            raise PrivacyError(f"{path}: release {number} is missing, or stands there twice.")
        epsilon = release.epsilon
        if (epsilon is None) == header.guaranteed:
            raise PrivacyError(f"{path}: the epsilon of release {number} does not fit the header.")
        least = header.epsilon(charges.repetitions)
        if epsilon is not None and least is not None and epsilon < least * (1 - 1e-9):
            raise PrivacyError(f"{path}: release {number} claims epsilon {epsilon:g}; it is {least:g}.")
    return epsilon


def _verify_ends(path: Path, account: Account) -> None:
    """Check the lines that say how much a finished run has spent, and its result."""
    entries = account.content.entries
    ends = [(place, entry) for place, entry in enumerate(entries) if isinstance(entry, RunEnd)]
    for place, end in ends:
        _verify_end(path, account, end, releases_in(entries[:place]))
    result = Result.find(path.parent)
    if result is not None:
        file = path.parent / Result.FILE
        if not ends:
            raise PrivacyError(f"{path} does not say how the run ended, but {file} exists: a line was cut off.")
        _verify_end(file, account, result, account.content.releases)


def _verify_end(path: Path, account: Account, end: RunEnd | Result, releases: tuple[Release, ...]) -> None:
    """Check the releases and epsilons of an end: those of a line of the ledger, or of the result."""
    if end.releases != len(releases):
        raise PrivacyError(f"{path}: it says {end.releases} releases; the ledger holds {len(releases)}.")
    if not account.header.guaranteed:
        return
    charges = Charges((release.step, release.aggregate) for release in releases)
    spent, delta = account.header.spent_on(charges.repetitions), account.target_delta
    for name, claimed, least in (
        ("epsilon_rdp", end.epsilon_rdp, rdp(spent, delta).epsilon),
        ("epsilon_pld", end.epsilon_pld, pld(spent, delta).epsilon),
    ):
        if claimed is not None and least is not None and claimed < least * (1 - 1e-6):
            raise PrivacyError(f"{path}: it says {name} {claimed:g}; it is {least:g}.")
