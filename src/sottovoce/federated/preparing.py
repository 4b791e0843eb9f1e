"""What a federated run needs before its first step, checked: data, model, mechanism, and the seed model's origin.

Nothing is written here, so that a dry run prepares exactly what the run itself would.
"""

import math
from dataclasses import dataclass

from sottovoce.config import Config
from sottovoce.data.bandwidths import declared_band
from sottovoce.data.cohort import UserGroups
from sottovoce.data.population import Population
from sottovoce.errors import ConfigError, PrivacyError
from sottovoce.federated.client import Client
from sottovoce.federated.federated_options import Federated
from sottovoce.federated.seed import SeedModel, describe_seed_model
from sottovoce.privacy.acceptance import require_accepted
from sottovoce.privacy.accounting import rdp
from sottovoce.privacy.bounds_state import start_bounds_
from sottovoce.privacy.ledger import LEDGER_FILE, read_ledger
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.privacy_options import Privacy
from sottovoce.randomness import stream
from sottovoce.runs.folder import Run
from sottovoce.runs.training import OpenRun, TrainingContext


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a federated run trains with, checked as far as that is possible without writing anything."""

    context: TrainingContext
    speakers: Population
    users: Population
    mechanism: Mechanism
    seed_model: SeedModel
    groups: UserGroups | None

    @classmethod
    def of(cls, opened: OpenRun) -> "Prepared":
        """Open data and model, and raise every error that would stop the first step."""
        config, options = opened.resolved.config, opened.resolved.config.federated
        speakers = opened.speakers()
        users = speakers.iid(config.seed) if config.users.iid else speakers
        context = opened.prepare(
            speakers,
            optimizer=options.optimizer,
            steps=options.central_steps,
            trainable=options.trainable,
            adapters=options.adapters,
        ).knowing(declared_band(speakers.store, config.specaugment))
        mechanism = Mechanism(
            _as_begun(config.privacy, opened.run),
            config.participation,
            context.recogniser.flat.partition(options.partition),
            config.randomness.source,
        )
        groups = mechanism.groups(users.keys(), config.seed)
        _require_possible(mechanism, users, groups)
        start_bounds_(context.state, mechanism)
        if options.patience is not None:
            _require_public_dev(config, context.dev)
        seed_model = SeedModel("") if opened.run.begun else describe_seed_model(config, speakers)
        return cls(
            context=context,
            speakers=speakers,
            users=users,
            mechanism=mechanism,
            seed_model=seed_model,
            groups=groups,
        )

    def header(self, population_ledger: str | None) -> LedgerHeader:
        """Return the header of the run's ledger."""
        config = self.context.resolved.config
        return LedgerHeader.of(
            self.mechanism,
            unit=self.users.unit,
            seed_model=self.seed_model.description,
            config_hash=config.public_hash,
            earlier=self.seed_model.earlier,
            population_ledger=population_ledger,
            planned_steps=None if config.federated.patience is None else config.federated.central_steps,
        )

    @property
    def client(self) -> Client:
        """The local work of users."""
        config = self.context.resolved.config
        return Client(
            *(self.users.store, config.batching, config.federated.local, config.specaugment, config.seed),
            partition=config.federated.partition,
        )


def shorter(options: Federated) -> str:
    """Return what makes a federated run shorter."""
    local = options.local.described
    return (
        f"users train {local} in every step; set federated.local.steps, a smaller participation.cohort_size or fewer "
        "federated.central_steps"
    )


def _require_public_dev(config: Config, dev: Population | None) -> None:
    """Raise where dev may not decide when the run ends: everyone sees that, so dev must be public and hold no user.

    Without a guarantee there is nothing to protect.
    """
    if dev is None:
        raise ConfigError("federated.patience counts evaluations on dev. Give a dev set with --dev.")
    if config.privacy.void is not None:
        return
    if "same_audio" in config.privacy.accept:
        raise PrivacyError(
            "Dev may hold audio of users (privacy.accept has same_audio), so it must not decide when the run ends. "
            "Leave out federated.patience, or use another dev set."
        )
    problem = "federated.patience lets dev decide when the run ends, and everyone can see that."
    require_accepted("public_dev", config.privacy.accept, problem, "Leave it out.")


def _as_begun(privacy: Privacy, run: Run) -> Privacy:
    """Return the options with noise as the run's ledger has it: a resumed run keeps what was computed when it began."""
    path = run.path / LEDGER_FILE
    content = read_ledger(path) if path.exists() else None
    if content is None or not privacy.noise.stands_for(content.header.noise_mechanism):
        return privacy
    return privacy.model_copy(update={"noise": content.header.noise_mechanism})


def _require_possible(mechanism: Mechanism, users: Population, groups: UserGroups | None) -> None:
    """Raise every error that would stop the first step, before anything is written."""
    _ = mechanism.clip_norms
    mechanism.draw_cohort(len(users), stream(0, "trial"), groups=groups)
    mechanism.require_range(math.ceil(mechanism.cohort_size + 6 * math.sqrt(mechanism.cohort_size)))
    mechanism.require_small_delta()
    if mechanism.privacy.void is None:
        rdp(mechanism.spent(1), mechanism.privacy.target_delta)
