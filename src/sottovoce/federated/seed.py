"""The seed model of a federated run: who it was trained on, as far as that can be known.

The guarantee is about what a run releases. It says nothing of what its seed model reveals. A seed model that was
trained on some of the users without noise voids it, which is an error. One that comes from a private run adds that
run's releases to what is spent. Where nobody can know, the operator must say so, and the ledger records it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from sottovoce.config import Config
from sottovoce.data.overlap import overlap_of
from sottovoce.data.population import Population
from sottovoce.errors import PrivacyError, SottoError
from sottovoce.files import sha256_of
from sottovoce.model.model_file import model_path
from sottovoce.privacy.acceptance import require_accepted
from sottovoce.privacy.ledger import LEDGER_FILE, LedgerContent
from sottovoce.privacy.ledger_header import EarlierRun
from sottovoce.privacy.ledger_lines import Saved
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
            return SeedModel(self._unknown(checkpoint, "no longer there, trained on speakers that are not known"))
        digest, run = f"sha256 {sha256_of(model)}", run_of(model)
        if run is None:
            return SeedModel(self._unknown(checkpoint, f"{digest}, trained on speakers that are not known"))
        begun, content = RunConfig.read(run), self._private_run(checkpoint, run)
        if content is None:
            seed = SeedModel(self._compared(checkpoint, run, begun, "train", f"{digest}, trained on other speakers"))
        else:
            releases = f"{digest}, trained by a private run of {len(content.charges)} releases, which are added"
            account = RunCharges(content.run, "", str(run.absolute()), content.header, content.charges)
            seed = SeedModel(releases, (*content.header.earlier, content.as_earlier()), (account,))
        if begun.selection("dev", run):  # its best model is chosen on dev
            seed = replace(seed, description=self._compared(checkpoint, run, begun, "dev", seed.description))
        before = begun.seed_model(run)
        return seed if before is None else _after(self.describe(before), seed)

    def _private_run(self, checkpoint: Path, run: Path) -> LedgerContent | None:
        """Return the ledger of a run whose releases are added to this run's; None for other seed models.

        Its releases are added whoever its users were: an epsilon that depended on whether one person was in both runs
        would reveal it. Only the operator can say that they are other people.
        """
        privacy = self.config.privacy
        if privacy.void is not None or "other_users" in privacy.accept or not (run / LEDGER_FILE).exists():
            return None
        content = verified_account(run).content
        header = content.header
        subtractable = header.simulated and self.config.randomness.source == "secure"
        if not header.guaranteed or subtractable:
            return None
        if sha256_of(model_path(checkpoint)) not in {one.model for one in content.entries if isinstance(one, Saved)}:
            raise PrivacyError(f"{run / LEDGER_FILE} does not name the model {checkpoint}. Give RUN/last or RUN/best.")
        unit = "synthetic user" if self.config.users.iid else self.users.unit
        adjacency = self.config.participation.adjacency
        if (header.unit, header.adjacency) != (f"all audio of one {unit}", adjacency):
            raise PrivacyError(
                f"The seed model {checkpoint} comes from a private run that does not add up with this one "
                f"({header.unit}; {header.adjacency}). Use another seed model."
            )
        return content

    def _compared(self, checkpoint: Path, run: Path, begun: RunConfig, role: str, description: str) -> str:
        """Return the description of a seed model none of whose speakers is a user, or raise."""
        speakers = _speakers_of(begun, run, role)
        if speakers is None:
            digest = description.partition(",")[0]
            unknown = f"{digest}, trained on speakers that are no longer there to be compared"
            self._unknown(checkpoint, unknown)
            return f"{description}; its {role} speakers are no longer there to be compared"
        if common := self._common_speakers(speakers):
            raise PrivacyError(
                f"The seed model {checkpoint} was made with {common} of the users ({role}): their audio is in it "
                "without noise that counts here. Split the speakers first."
            )
        return description

    def _common_speakers(self, speakers: Population) -> int:
        """Return how many users are heard in the speech of a seed model, by name or by audio."""
        common = overlap_of(speakers, self.users)
        others = "same_names" in self.config.privacy.accept and not common.same_store and not common.utterances
        return 0 if others else len(common.speakers)

    def _unknown(self, checkpoint: Path, description: str) -> str:
        """Return the description of a seed model whose speakers cannot be known, or raise.

        It is accepted where there is no guarantee that could suffer, and where the operator has stated it.
        """
        if self.config.privacy.void is None:
            require_accepted(
                "unknown_seed_model",
                self.config.privacy.accept,
                f"Nobody can tell whether users are in the seed model {checkpoint}: it is {description}.",
                "Give a model inside the folder of its run, with its data in place.",
            )
        return description


def _after(before: SeedModel, seed: SeedModel) -> SeedModel:
    """Return a seed model that itself began with another.

    A run that both know of is in it once, as the later ledger has recorded it.
    """
    earlier = {run.run: run for run in (*before.earlier, *seed.earlier)}
    accounts = {account.run: account for account in (*before.accounts, *seed.accounts)}
    description = f"{seed.description}; it began with: {before.description}"
    return SeedModel(description, tuple(earlier.values()), tuple(accounts.values()))


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
