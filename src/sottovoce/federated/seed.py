"""The seed model of a federated run: who it was trained on, as far as that can be known.

The guarantee is about what a run releases. It says nothing of what its seed model reveals. A seed model that was
trained on some of the users without noise voids it, which is an error. One that was trained on them by a private run
adds that run's releases to what is spent. Where nobody can know, the operator must say so, and the ledger records it.
"""

from dataclasses import dataclass
from pathlib import Path

from sottovoce.config import Config
from sottovoce.data.overlap import overlap_of
from sottovoce.data.population import Population
from sottovoce.errors import PrivacyError, SottoError
from sottovoce.files import sha256_of
from sottovoce.model.recogniser import model_path
from sottovoce.privacy.acceptance import require_accepted
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.privacy.ledger_header import UNKNOWN, EarlierRun
from sottovoce.privacy.population_ledger import RunCharges
from sottovoce.runs.documents import RunConfig, read_json
from sottovoce.runs.verification import verified_account

NONE = "none"


@dataclass(frozen=True)
class SeedModel:
    """The model that a run starts from, as its ledger describes it."""

    description: str
    earlier: tuple[EarlierRun, ...] = ()  # private runs on the same users, whose releases are part of what is spent
    accounts: tuple[RunCharges, ...] = ()  # what those runs have charged


def describe_seed_model(config: Config, users: Population) -> SeedModel:
    """Say in a few words what the seed model was trained on.

    Raise PrivacyError where its speakers are users, unless they were protected by noise that adds up with this run's,
    and where nobody can know who they are, unless the operator states that they are other people.
    """
    if config.data.seed_model is None:
        return SeedModel(NONE)
    return _Origin(config, users).describe(config.data.seed_model)


@dataclass(frozen=True)
class _Origin:
    """Follows a seed model to the speech that it comes from."""

    config: Config
    users: Population

    def describe(self, checkpoint: Path) -> SeedModel:
        """Describe a checkpoint, and the seed models before it."""
        try:
            model = model_path(checkpoint)
        except SottoError:
            return self._unknown(checkpoint, "no longer there, trained on speakers that are not known")
        digest, run = sha256_of(model), run_of(model)
        if run is None:
            return self._unknown(checkpoint, f"sha256 {digest}, trained on speakers that are not known")
        begun = RunConfig.read(run)
        seed = SeedModel(f"sha256 {digest}, trained on other speakers")
        for role in ("train", "dev") if begun.selection("dev", run) else ("train",):  # its best model is chosen on dev
            speakers = _speakers_of(begun, run, role)
            if speakers is None:
                unknown = f"sha256 {digest}, trained on speakers that are no longer there to be compared"
                seed = self._unknown(checkpoint, unknown)
            elif common := self._common_speakers(speakers):
                seed = self._private(checkpoint, run, digest, f"{common} of the users ({role})", role)
        before = begun.seed_model(run)
        return seed if before is None or seed.earlier else _after(self.describe(before), seed)

    def _common_speakers(self, speakers: Population) -> int:
        """Return how many users are heard in the speech of a seed model, by name or by audio."""
        common = overlap_of(speakers, self.users)
        others = "same_names" in self.config.privacy.accept and not common.same_store and not common.utterances
        return 0 if others else len(common.speakers)

    def _unknown(self, checkpoint: Path, description: str) -> SeedModel:
        """Return a seed model whose speakers cannot be known, where a guarantee does not suffer or it is accepted."""
        if self.config.privacy.void is None:
            require_accepted(
                "unknown_seed_model",
                self.config.privacy.accept,
                f"Nobody can tell whether users are in the seed model {checkpoint}: it is {description}.",
                "Give a model inside the folder of its run, with its data in place.",
            )
        return SeedModel(description)

    def _private(self, checkpoint: Path, run: Path, digest: str, users: str, role: str) -> SeedModel:
        """Return a seed model that was trained on users with a guarantee that adds up with this run's, or raise."""
        if role != "train" or not (run / LEDGER_FILE).exists():
            raise PrivacyError(
                f"The seed model {checkpoint} was made with {users}: their audio is in it without noise. Split the "
                "speakers first."
            )
        content = verified_account(run).content
        header = content.header
        for wrong, why in (
            (not header.guaranteed, f"without a guarantee ({header.guarantee.removeprefix('none: ')})"),
            (
                header.simulated and self.config.randomness.source == "secure",
                "with seeded noise, which can be subtracted",
            ),
            (header.unit != f"all audio of one {self._unit}", f"as {header.unit.removeprefix('all audio of ')}"),
        ):
            if wrong:
                raise PrivacyError(f"The seed model {checkpoint} was made with {users}, {why}. Use another seed model.")
        account = RunCharges(content.run, "", str(run.absolute()), header, content.charges)
        description = (
            f"sha256 {digest}, trained on the same users by a private run of {len(content.charges)} releases, which "
            f"are added; its own seed model: {header.seed_model or UNKNOWN}"
        )
        return SeedModel(description, (*header.earlier, content.as_earlier()), (account,))

    @property
    def _unit(self) -> str:
        return "synthetic user" if self.config.users.iid else self.users.unit


def _after(before: SeedModel, seed: SeedModel) -> SeedModel:
    """Return a seed model that itself began with another."""
    description = f"{seed.description}; it began with: {before.description}"
    return SeedModel(description, before.earlier, before.accounts)


def _speakers_of(begun: RunConfig, run: Path, role: str) -> Population | None:
    """Return the speakers that a run was trained or evaluated on; None where that can no longer be known."""
    selection = begun.selection(role, run)
    if selection is None:
        return None
    try:
        speakers = selection.open()
    except SottoError:
        return None
    dealt = role == "train" and begun.setting("users.iid")
    population = speakers.iid(begun.setting("seed")) if dealt else speakers
    same = population.hash in (begun.data.get(role), begun.data.get("users") if role == "train" else None)
    return speakers if same else None


def run_of(model: Path) -> Path | None:
    """Return the folder of the run that a model lies in: RUN/last/model.safetensors, or below checkpoints.

    A config.json of something else than a run says nothing.
    """
    for folder in (*model.absolute().parents[:2], *model.resolve().parents[:3]):
        if (folder / RunConfig.FILE).is_file():
            content = read_json(folder / RunConfig.FILE)
            ours = isinstance(content, dict) and isinstance(content.get("config"), dict)
            return folder if ours else None
    return None
