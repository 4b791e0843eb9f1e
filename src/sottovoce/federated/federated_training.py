"""Federated training: T central steps, with evaluation, checkpoints, metrics and a ledger.

The folder of a run is described in `runs/folder.py`, its ledger in `privacy/ledger.py`. Killed and started again, a run
resumes. With seeded randomness it then ends with the same bits as a run that was never killed, for any number of
workers.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from sottovoce.config import Config, Resolved
from sottovoce.data.bandwidths import heard_in
from sottovoce.data.population import Population
from sottovoce.distributed import Group
from sottovoce.errors import PrivacyError
from sottovoce.federated.aggregator import AggregatorContext, MakeAggregator
from sottovoce.federated.engine import Engine
from sottovoce.federated.preparing import Prepared, shorter
from sottovoce.federated.process_aggregator import ProcessAggregator
from sottovoce.federated.seed import SeedModel
from sottovoce.model.model_file import heard_by
from sottovoce.privacy.accounting import Pld, delta_caution, pld, rounded_up
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger, read_ledger, require_same_mechanism
from sottovoce.privacy.ledger_header import LedgerHeader
from sottovoce.privacy.ledger_lines import RunEnd
from sottovoce.privacy.noise import NoiseState
from sottovoce.privacy.population_ledger import PopulationLedger, place_beside
from sottovoce.privacy.population_notes import population_notes
from sottovoce.runs.display import MakeDisplay
from sottovoce.runs.documents import Checkpoint, Result
from sottovoce.runs.folder import LAST, Run
from sottovoce.runs.stop import Stop
from sottovoce.runs.training import OpenRun, Training, data_hashes, open_run
from sottovoce.runs.verification import verify_checkpoint

# Settings that may differ when a run resumes: none of them changes the steps already taken.
MAY_CHANGE = (
    *("federated.central_steps", "federated.evaluate_every", "federated.checkpoint_every"),
    *(
        "data.test",
        "data.seed_model",
        "privacy.budget",
        "privacy.ledger",
        "privacy.diagnostics",
        "federated.patience",
        "about",
        "corpus",
        "joining",
        "features",
        "central",
    ),
)


def train_federated(
    group: Group,
    resolved: Resolved,
    folder: Path,
    make_display: MakeDisplay,
    stop: Stop | None = None,
    make_aggregator: MakeAggregator | None = None,
) -> None:
    """Train for the configured number of central steps; rank 0 writes into `folder`.

    Without `make_aggregator`, the processes of the group train the users and add up their deltas.
    """
    with open_run(group, "federated", resolved, folder, make_display, stop) as opened:
        _train(opened, make_aggregator or ProcessAggregator.of)


def _train(opened: OpenRun, make_aggregator: MakeAggregator) -> None:
    prepared = Prepared.of(opened)
    config, run, options = opened.resolved.config, opened.run, opened.resolved.config.federated
    context, speakers, users = prepared.context, prepared.speakers, prepared.users
    population = _open_population(config, users) if context.group.leads else None
    header = prepared.header(None if population is None else population.id)
    if context.group.leads:
        require_same_mechanism(run.path / LEDGER_FILE, header)
        _require_marked(run)
        _require_sum(config, header, population, prepared.seed_model)
    training = Training.begin(
        context,
        may_change=MAY_CHANGE,
        data=data_hashes(config, run, users=users, dev=context.dev),
        shorter=shorter(options),
        patience=options.patience,
        timed=False,
        events=config.diagnostics,
    )
    _say_first(training, len(users))
    _say_bandwidths(training, speakers)
    with closing(training.log):
        if population is not None:
            training.ledger = _open_ledger(training, header, population, speakers)
        engine = _make_engine(training, prepared, header, make_aggregator)
        within_budget = _take_steps(training, engine)
        training.finish()
        ended = training.progress.step >= context.steps or not within_budget
        if ended or (training.stalled and not context.stop.interrupted):
            _conclude(training)


def _open_population(config: Config, users: Population) -> PopulationLedger:
    """Open the ledger that all runs on these users share."""
    store = users.store.path
    return PopulationLedger(config.privacy.ledger or place_beside(store), store)


def _require_sum(
    config: Config, header: LedgerHeader, population: PopulationLedger | None, seed_model: SeedModel
) -> None:
    """Charge what the seed model has spent; raise where that, or what other runs have spent, cannot be added up."""
    header.epsilon({1: 1})
    if population is not None:
        for account in seed_model.accounts:
            population.charge(account, account.charges.pairs())
        population.require_earlier(header)
        if config.privacy.budget is not None:
            header.own_cost({})  # raises without a guarantee
            population.require_sum(header)


def _require_marked(run: Run) -> None:
    """Raise PrivacyError where the last checkpoint is not one that the run's ledger names."""
    checkpoint = run.checkpoint
    if checkpoint is not None and checkpoint.ledger is None:
        raise PrivacyError(f"{run.path / 'last'} does not say where its ledger ended: it was changed. Restore it.")
    path = run.path / LEDGER_FILE
    content = read_ledger(path) if checkpoint is not None and path.exists() else None
    if content is not None:
        verify_checkpoint(path, run.path / LAST / Checkpoint.FILE, content)


def _open_ledger(training: Training, header: LedgerHeader, population: PopulationLedger, users: Population) -> Ledger:
    """Open the run's ledger; a result that more steps will outdate is removed."""
    config, run = training.context.resolved.config, training.context.run
    ledger = Ledger(
        run.path / LEDGER_FILE,
        header,
        training.ledger_mark,
        budget=config.privacy.budget,
        population=population,
        users=users.speakers,
    )
    training.forget_result()
    return ledger


def _say_first(training: Training, users: int) -> None:
    """Say, before the first step, where there is no guarantee and where K is not the store's number of users.

    The number of users is private, so without diagnostics nothing is said about it.
    """
    context = training.context
    config = context.resolved.config
    if training.progress.step >= context.steps:
        return
    if config.privacy.void is not None:
        context.display.say(f"No privacy guarantee: {config.privacy.void}.")
    if config.diagnostics:
        for note in population_notes(config.participation, users):
            context.display.say(f"Note: {note}")


def _say_bandwidths(training: Training, speakers: Population) -> None:
    """Say, before the first step, where dev and test have another bandwidth than what the model hears.

    The bandwidth of users' audio is private. So without diagnostics they are compared with the band that the store was
    limited to on purpose or, where it was not, with what the seed model has heard.
    """
    context = training.context
    config = context.resolved.config
    if training.progress.step >= context.steps:
        return
    seed_model = config.data.seed_model
    if config.diagnostics:
        heard = heard_in(speakers, config.specaugment)
    elif context.recogniser.heard is not None or seed_model is None:
        heard = context.recogniser.heard
    else:
        heard = heard_by(seed_model)
    context.say_differences(heard)


def _make_engine(
    training: Training, prepared: Prepared, header: LedgerHeader, make_aggregator: MakeAggregator
) -> Engine:
    """Write the guarantee into the metrics, and return the engine as the last checkpoint left it."""
    context, done = training.context, training.progress.step
    config, run, users, mechanism = context.resolved.config, context.run, prepared.users, prepared.mechanism
    begun = header if training.ledger is None else training.ledger.header  # a resumed run keeps the header it has
    planned = Epsilons(rdp=begun.epsilon({1: config.federated.central_steps}))
    line: dict[str, Any] = {"guarantee": _guarantee(config, begun, planned)}
    if config.diagnostics and len(users) != mechanism.population:
        line["not_private"] = {"users": len(users)}
    training.log.write(done, line)
    aggregating = AggregatorContext(context.group, users, context.recogniser, prepared.client, mechanism, training.stop)
    engine = Engine(
        make_aggregator(aggregating),
        context.recogniser,
        mechanism,
        config.federated.optimizer,
        context.state,
        users=len(users),
        seed=config.seed,
        ledger=training.ledger,
        groups=prepared.groups,
    )
    if context.group.leads:
        _resume_noise(run, engine, done)
        training.secret_noise = lambda: engine.noise_state.vectors
    return engine


def _resume_noise(run: Run, engine: Engine, done: int) -> None:
    """Give a noise mechanism the state that it had at the last checkpoint."""
    kept = run.load_noise()
    if done > 0 and kept.keys() != engine.noise_state.vectors.keys():
        raise PrivacyError(f"The state of the noise is missing from {run.path / 'last'}. Restore it, or start again.")
    if kept:
        device = engine.theta.device
        engine.noise_state = NoiseState({name: vector.to(device) for name, vector in kept.items()})


def _guarantee(config: Config, header: LedgerHeader, epsilon: Epsilons, refused: str | None = None) -> str:
    """State in one line what a run guarantees; `refused` is why there is no epsilon by PLD, where there is none."""
    if epsilon.rdp is None:
        return header.guarantee
    by_pld = "" if epsilon.pld is None else f", {rounded_up(epsilon.pld)} (PLD)"
    without_pld = "" if refused is None else f"; PLD refused: {refused}"
    seeded_by = "" if config.data.seed_model is None else "; beyond what the seed model reveals"
    if header.earlier:
        seeded_by = "; with what the seed model has spent"
    simulated = " (seeded randomness: a simulation)" if header.simulated else ""
    caution = delta_caution(header.target_delta, header.population)
    cautioned = "" if caution is None else f"; caution: {caution.removesuffix('.')}"
    return (
        f"epsilon {rounded_up(epsilon.rdp)} (RDP){by_pld} at delta {header.target_delta:g}; unit: {header.unit}; "
        f"adjacency: {header.adjacency}{seeded_by}{simulated}{cautioned}{without_pld}"
    )


def _take_steps(training: Training, engine: Engine) -> bool:
    """Take the remaining central steps, until the last one or a request to stop; return False at the budget's end."""
    config, ledger = training.context.resolved.config, training.ledger
    options, diagnostics, group = config.federated, config.diagnostics, training.context.group
    # A secure step that is lost is charged again, so every one of them is saved.
    checkpoint_every = 1 if engine.mechanism.source == "secure" else options.checkpoint_every
    done = training.progress.step
    if done > 0 and done % options.evaluate_every == 0 and training.progress.evaluated != done:
        training.evaluate()
    while done < options.central_steps and not engine.stopping and not training.stalled:
        if config.privacy.budget is not None and not group.from_leader(ledger is None or ledger.may_release(done)):
            return False
        started = time.monotonic()
        central_lr = options.schedule.at(done)
        figures = engine.step(done, central_lr)
        epsilon = None if ledger is None else ledger.epsilon
        line = {"central_lr": central_lr, "epsilon": epsilon, **figures.line(diagnostics=diagnostics)}
        if diagnostics:
            line["not_private"]["elapsed_seconds"] = training.log.elapsed_seconds
        speed = figures.cohort / (time.monotonic() - started)
        training.step_done(
            line,
            loss=figures.loss if diagnostics else None,
            speed=f"{speed:.1f} users per second" if diagnostics else "",
            epsilon=epsilon,
            timed=diagnostics,
        )
        done = training.progress.step
        evaluated = training.evaluate_or_save(evaluate_every=options.evaluate_every, checkpoint_every=checkpoint_every)
        if evaluated or engine.stopping is None:  # the evaluation may have taken long
            engine.stopping = training.stop.agreed(group)
    return True


def _conclude(training: Training) -> None:
    """Evaluate on dev and test, speaker by speaker, account tightly, and write the result."""
    context, progress, ledger = training.context, training.progress, training.ledger
    config, before = context.resolved.config, context.run.result
    if context.group.from_leader(before is not None and before.steps == progress.step):
        return
    evaluations = training.record_evaluations()
    if ledger is None:
        return
    tight = _tight_epsilon(config, ledger)
    spent = Epsilons(ledger.epsilon, tight.epsilon)
    ledger.note(RunEnd(finished=progress.step, releases=ledger.releases, epsilon_rdp=spent.rdp, epsilon_pld=spent.pld))
    Result(
        steps=progress.step,
        dev_wer=progress.last_wer,
        best_dev_wer=progress.best_wer,
        test=evaluations["test"].total if "test" in evaluations else None,
        releases=ledger.releases,
        epsilon_rdp=spent.rdp,
        epsilon_pld=spent.pld,
        stopped=_stopped(training),
        guarantee=_guarantee(config, ledger.header, spent, tight.reason),
    ).write(context.run.path)


def _stopped(training: Training) -> str | None:
    """Return why a run ended before its last step; None after the last one."""
    if training.progress.step >= training.context.steps:
        return None
    return "by federated.patience" if training.stalled else "by privacy.budget"


def _tight_epsilon(config: Config, ledger: Ledger) -> Pld:
    """Return the epsilon of all releases by PLD; none without a guarantee, or where PLD is refused."""
    if ledger.epsilon is None:
        return Pld(None)
    return pld(ledger.spent, config.privacy.target_delta)
