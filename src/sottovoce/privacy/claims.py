"""Statements about a run: its epsilon at other sizes, of several runs together, and the statement a reviewer signs.

Everything is read from the ledger; nothing comes from the model or from private data.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.acceptance import SENTENCES, Acceptance
from sottovoce.privacy.accounting import (
    Accounted,
    Event,
    Spent,
    account_for,
    delta_at,
    delta_caution,
    require_delta,
    rounded_up,
    short_exponents,
    short_number,
)
from sottovoce.privacy.charges import Charges
from sottovoce.privacy.epsilons import NOBODY_PROTECTED, Epsilons
from sottovoce.privacy.events import ZERO_OUT, extra_delta_of
from sottovoce.privacy.ledger import LEDGER_FILE, LedgerContent, read_ledger
from sottovoce.privacy.ledger_header import UNKNOWN, LedgerHeader
from sottovoce.privacy.mechanism import Mechanism, cohorts_for, plain_mechanism
from sottovoce.privacy.noise import NoiseMechanism
from sottovoce.privacy.privacy_options import Sampling
from sottovoce.privacy.run_files import PRIVATE_FILES, RUN_FILES, RunFile
from sottovoce.privacy.target_delta import ACCEPT_LARGE_DELTA, require_small_delta

DELTAS = (1e-6, 1e-8, 1e-9, 1e-10, 1e-12)
FALSE_POSITIVES = (0.001, 0.01, 0.1)
_PLACES = 400  # of the grid of epsilons on which the bound on an attacker is sought


@dataclass(frozen=True)
class Account:
    """A run and its ledger, for questions about the privacy that it has spent."""

    run: Path
    content: LedgerContent

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.run / LEDGER_FILE

    @property
    def header(self) -> LedgerHeader:
        """The mechanism, and what it protects."""
        return self.content.header

    @property
    def releases(self) -> int:
        """The number of releases."""
        return len(self.content.releases)

    @property
    def spent(self) -> Spent:
        """What the run has spent, its seed model's releases on the same users included; raises without a guarantee."""
        return self._guaranteed.spent_on(self.content.charges.repetitions)

    @property
    def _guaranteed(self) -> LedgerHeader:
        if not self.header.guaranteed:
            raise PrivacyError(f"{self.run} has no epsilon: {self.header.guarantee}.")
        return self.header

    @property
    def target_delta(self) -> float:
        """The delta that the run was made for."""
        return self.header.target_delta


def open_account(run: Path) -> Account:
    """Read the ledger of a run; raise where its chain is broken."""
    path = run / LEDGER_FILE
    if not path.is_file():
        raise DataError(f"There is no {path}. Give the folder of a federated run.")
    content = read_ledger(path)
    if content is None:
        raise DataError(f"{path} is empty. Give the folder of a federated run that was started.")
    return Account(run, content)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The epsilon of a mechanism after some releases."""

    mechanism: Mechanism
    releases: int
    target_delta: float

    @property
    def spent(self) -> Spent:
        """What the releases cost."""
        return self.mechanism.spent(self.releases)

    @cached_property
    def accounted(self) -> Accounted:
        """The epsilon by both accountants."""
        return account_for(self.spent, self.target_delta)

    @property
    def caution(self) -> str | None:
        """One line where delta is too large for the population; None otherwise."""
        return delta_caution(self.target_delta, self.mechanism.population)


def claim_for(
    *,
    sigma_dp: float,
    cohort_size: float,
    population: int,
    central_steps: int,
    target_delta: float,
    sampling: Sampling = "poisson",
    cap: int | None = None,
    noise: NoiseMechanism | None = None,
    accepted: Collection[Acceptance] = (),
) -> Claim:
    """Return the claim of a run with these sizes, whose users all count alike, by default with independent noise.

    A delta that is not below 1/K is refused, unless `large_delta` is accepted.
    """
    require_delta(target_delta)
    require_small_delta(target_delta, population, accepted, how=ACCEPT_LARGE_DELTA)
    cohorts = cohorts_for(noise, sampling)
    mechanism = plain_mechanism(sigma_dp, cohort_size, population, cohorts, noise=noise, cap=cap)
    return Claim(mechanism=mechanism, releases=central_steps, target_delta=target_delta)


@dataclass(frozen=True, kw_only=True)
class RunClaim(Claim):
    """The epsilon that a run would have with another cohort size and population, at the same noise."""

    account: Account

    @property
    def assumption(self) -> str:
        """What the claim assumes, in words."""
        header, claimed = self.account.header, self.mechanism
        average = (
            "as many or more users, so that its model is assumed to be no worse"
            if claimed.cohort_size >= header.cohort_size
            else "fewer users, so that its model may be worse"
        )
        cap = claimed.participation.cap
        capped = "" if cap is None else f" Cohorts are cut to {cap:,} users there, as many times S as here."
        return (
            f"Assumed: a run with S = {claimed.cohort_size:,g} of K = {claimed.population:,} users and {self.releases} "
            f"releases, with C = {_number(header.clip_norm)} and sigma_dp = {_number(header.sigma_dp)} as here. The "
            f"noise on its average is as large as in this run, and its average is over {average}. Simulated was S = "
            f"{header.cohort_size:,g} of K = {header.population:,}: the WER of this run was measured there, not at the "
            f"sizes of the claim.{capped}"
        )


def claim_at(
    account: Account,
    cohort_size: float,
    population: int,
    central_steps: int | None = None,
    target_delta: float | None = None,
    accepted: Collection[Acceptance] = (),
) -> RunClaim:
    """Return the claim of a run at other sizes; by default with as many releases and the same delta.

    A delta that is not below 1/K is refused, unless `large_delta` is accepted.
    """
    made = max(account.releases, account.header.planned_steps or 0)
    releases = made if central_steps is None else central_steps
    _ = account.spent  # raises without a guarantee
    if account.header.earlier:
        raise PrivacyError(f"{account.run} starts from a private run on the same users: claim at other sizes for both.")
    delta = account.target_delta if target_delta is None else target_delta
    require_delta(delta)
    require_small_delta(delta, population, accepted, how=ACCEPT_LARGE_DELTA)
    mechanism = account.header.at(cohort_size, population, str(account.run))
    return RunClaim(account=account, mechanism=mechanism, releases=releases, target_delta=delta)


def composed(accounts: Sequence[Account]) -> Spent:
    """Return what several runs on one population spend together, each release counted once.

    Copies of a run share the releases before they were copied, and a run that starts from the model of another holds
    the other's releases.
    """
    units = {account.header.unit for account in accounts}
    if len(units) > 1:
        raise PrivacyError(f"These runs protect different things, which do not add up: {', '.join(sorted(units))}.")
    _ = [account.spent for account in accounts]  # raises without a guarantee
    charges: dict[str, Charges] = {}
    headers = {account.content.run: account.header for account in accounts}
    for account in accounts:
        known = charges.setdefault(account.content.run, Charges())
        for step, aggregate in account.content.charges.pairs():
            known.add(step, aggregate)
    ends = {head for account in accounts for head in account.content.hashes}
    earlier = {run.head: run for account in accounts for run in account.header.earlier if run.head not in ends}
    own = (header.own_cost(charges[run].repetitions) for run, header in headers.items())
    return sum((*own, *(run.spent for run in earlier.values())), Spent({}))


def true_positives(spent: Spent, false_positives: float) -> float | None:
    """Return a bound on the rate at which an attacker correctly says that a user took part, at a rate of false alarms.

    Every epsilon gives the bound e^epsilon * false_positives + delta(epsilon), by the tight accounting; None where that
    is refused. The bound is convex in e^epsilon, so bisection finds the lowest on a grid.
    """
    highest = math.log(1 / false_positives)  # beyond it the bound is 1

    def bound(place: int) -> float | None:
        epsilon = highest * place / _PLACES
        delta = delta_at(spent, epsilon)
        return None if delta is None else math.exp(epsilon) * false_positives + delta

    low, high = 0, _PLACES
    while low < high:
        middle = (low + high) // 2
        here, beyond = bound(middle), bound(middle + 1)
        if here is None or beyond is None:
            return None
        low, high = (low, middle) if here <= beyond else (middle + 1, high)
    lowest = bound(low)
    return None if lowest is None else min(1.0, min(1.0, lowest) * math.exp(spent.extra))


def statement(account: Account, uncovered: Sequence[str] = ()) -> str:
    """Return the privacy statement of a run, in Markdown; `uncovered` adds to what is not covered, first of all."""
    header = account.header
    title = f"# Privacy statement of {account.run.name}\n\n"
    if not header.guaranteed:
        return f"{title}This run has no privacy guarantee: {header.guarantee.removeprefix('none: ')}.\n"
    spent = account.spent
    numbers = _numbers(tuple(spent.events.items()), spent.extra, spent.extra_delta)
    return (
        f"{title}{_summary(account)}\n## What is protected\n\n{_protected(header)}\n"
        f"## Mechanism\n\n{_mechanism(account)}\n{numbers}\n"
        f"## What is not covered\n\n{_not_covered(header.simulated, uncovered)}"
    )


def _number(value: float | None) -> str:
    return "none" if value is None else short_number(value)


def _rounded_up(epsilon: float) -> str:
    return short_exponents(rounded_up(epsilon))


def _summary(account: Account) -> str:
    spent = account_for(account.spent, account.target_delta)
    tight = "" if spent.pld.epsilon is None else f", {_rounded_up(spent.pld.epsilon)} by privacy loss distributions"
    text = (
        f"After {account.releases} releases: epsilon {_rounded_up(spent.rdp.epsilon)} by Renyi DP{tight}, "
        f"at delta {_number(account.target_delta)}.\n"
    )
    if spent.pld.reason is not None:
        text += f"\nThere is no epsilon by privacy loss distributions: {spent.pld.reason}.\n"
    if Epsilons(spent.rdp.epsilon, spent.pld.epsilon).protects_nobody:
        text += f"\n**{NOBODY_PROTECTED}**\n"
    caution = delta_caution(account.target_delta, account.header.population)
    if caution is not None:
        text += f"\n**Caution:** {caution}\n"
    if account.header.simulated:
        text += (
            "\n**This was a simulation.** Cohorts and noise came from a seed: whoever knows it can subtract the noise. "
            "The numbers hold for a run with secure randomness and the same settings.\n"
        )
    return text


def _protected(header: LedgerHeader) -> str:
    # One user more or less may decide whether a masked step has enough clients: all others are in its sum, or nobody.
    taking_part = " Whether that user takes part is not protected." if header.adjacency == ZERO_OUT else ""
    return (
        f"- Unit: {header.unit}.\n- Adjacency: {header.adjacency}.{taking_part}\n"
        f"- Population: K = {header.population:,}, stated by the operator as a public number.\n"
        f"- Covered: {'; '.join(_described(file) for file in RUN_FILES if file.side != 'private')}.\n"
    )


def _mechanism(account: Account) -> str:
    header = account.header
    kinds = {
        "poisson": "every user joins each step independently",
        "cyclic": "groups of users, by a hash of their name, take turns; every user of the group joins independently",
        "fixed": "a set of fixed size, drawn without replacement",
        "everyone": "everyone in every step",
    }
    lines = [
        f"Sampling: {kinds[header.sampling]}; expected cohort S = {header.cohort_size:g}, "
        f"probability q = {_number(header.sampling_prob)}.{_cut(header)}",
        *_clipping(header),
        f"Sum divided by {_number(header.divisor)}, public; weights: {_weights(header)}.",
        f"Noise: {header.noise_mechanism.description}, once per release, sigma_dp = {_number(header.sigma_dp)} "
        f"(std of the average in units of C), z = {_number(header.z)} times what one user can change; {header.noise}.",
        f"Composition: {account.releases} releases of this mechanism, adaptively chosen.{_turns(header)}"
        f"{_planned(header)}",
        *(
            f"Before: {run.releases} releases by a private run that the seed model comes from, with z = "
            f"{_number(run.z)} and q = {_number(run.sampling_prob)}; they are part of every epsilon here."
            for run in header.earlier
        ),
        f"Seed model: {header.seed_model or UNKNOWN}.",
        f"Code: {header.code}; configuration sha256 {header.config}.",
    ]
    lines += [f"Stated by the operator: {SENTENCES[name]}." for name in header.accepted]
    for change in account.content.changes:
        lines.append(f"Later: {', '.join(f'{key} {value}' for key, value in change.line().items())}.")
    return "".join(f"- {line}\n" for line in lines)


def _cut(header: LedgerHeader) -> str:
    if header.cap is None:
        return ""
    return (
        f" At most {header.cap:,} take part: a larger cohort is cut to a random part. That adds "
        f"{_rounded_up(header.truncation_delta)} to delta with every release, for up to K users; the store has no more."
    )


def _turns(header: LedgerHeader) -> str:
    apart = header.noise_mechanism.separation
    if apart == 1:
        return ""
    joining = header.noise_mechanism.participation_prob(header.sampling_prob)
    return (
        f" A user may take part in every {apart}th of them, with probability {_number(joining)}, and moves what is "
        f"hidden for {apart} steps; n releases are ceil(n / {apart}) sampled Gaussians for one user."
    )


def _clipping(header: LedgerHeader) -> list[str]:
    clipping = f"Clipping: {header.clipping} (rule {header.rule}), C = {_number(header.clip_norm)}"
    if header.adaptive is None:
        return [f"{clipping}; each user's update is rounded to integers whose norm is at most C, in exact arithmetic."]
    options, counts = header.adaptive.options, header.adaptive
    return [
        f"{clipping} before the first release; then bounds follow the quantile {options.quantile:g} of users' norms, "
        "by counts in the same releases. Each user's update, in units of its bounds, and its indicators are rounded to "
        "integers whose norm together is at most C = 1, in exact arithmetic.",
        f"Counts: {counts.bounds} in every release, with noise of std sigma_b = {_number(counts.sigma_b)} users; they "
        f"cost {100 * options.share:g} % of 1/z^2, and deltas alone would have z = {_number(counts.z_delta)}.",
    ]


def _planned(header: LedgerHeader) -> str:
    if header.planned_steps is None:
        return ""
    return (
        f" Dev decides when the run ends, by looking at releases: every epsilon counts all {header.planned_steps} "
        "planned steps."
    )


def _weights(header: LedgerHeader) -> str:
    bounded = "" if header.weight == "one" else f", at most {_number(header.weight_bound)} for one user"
    return f"{header.weight}{bounded}"


@lru_cache(maxsize=4)  # they take a second or more
def _numbers(events: tuple[tuple[Event, int], ...], extra: float, extra_delta: float) -> str:
    """Return the two sections of numbers, of what several releases cost."""
    spent = Spent(dict(events), extra, extra_delta)
    return f"## Epsilon at several deltas\n\n{_table(spent)}\n## What an attacker can tell\n\n{_attack(spent)}"


def _table(spent: Spent) -> str:
    rows = ["| delta | epsilon (RDP) | epsilon (PLD) |", "|---|---|---|"]
    for delta in DELTAS:
        if extra_delta_of(spent) >= delta:
            rows.append(f"| {_number(delta)} | none: cut cohorts take more | none |")
            continue
        found = account_for(spent, delta)
        tight = "refused" if found.pld.epsilon is None else _rounded_up(found.pld.epsilon)
        rows.append(f"| {_number(delta)} | {_rounded_up(found.rdp.epsilon)} | {tight} |")
    return "\n".join(rows) + "\n"


def _attack(spent: Spent) -> str:
    rates = {rate: best for rate in FALSE_POSITIVES if (best := true_positives(spent, rate)) is not None}
    if len(rates) < len(FALSE_POSITIVES):
        return "Not computed: privacy loss distributions are refused at this epsilon, which protects nobody.\n"
    rows = ["| false alarms | correct accusations, at most |", "|---|---|"]
    rows += [f"| {100 * rate:g} % | {_rounded_up(100 * best)} % |" for rate, best in rates.items()]
    return (
        "Someone who sees everything that was released, and knows all other users' audio, guesses whether one user "
        "took part (the f-DP reading). A user whom no cohort ever drew leaves no trace, and cannot be told from one "
        "who is not in the population:\n\n" + "\n".join(rows) + "\n"
    )


def _described(file: RunFile) -> str:
    return f"{file.name} ({file.content})"


def _not_covered(simulated: bool, uncovered: Sequence[str]) -> str:
    lines = [
        *uncovered,
        "The data of the seed model, and whatever the seed model reveals, unless its releases are part of the epsilon.",
        "Choices made by looking at the users' data: hyper-parameters, the number of runs, which one is published. "
        "Runs on the same users add up: `sotto privacy compose`.",
        "All other files of the run's folder. They stay with whoever ran the training: "
        f"{'; '.join(_described(file) for file in PRIVATE_FILES)}.",
        "What training prints: error rates on dev and test and, with privacy.diagnostics, losses, speeds and how many "
        "users there are.",
        "The list of speakers, wherever it is kept: it names the users.",
        "A language model built from users' transcripts and used with the model: it holds their words as they are.",
        "The dev and test sets: error rates are computed from their speakers' audio without noise.",
        "The server: it sees every update before the noise. Secure aggregation, or trust in it, is assumed.",
        "Side channels: time, traffic, crashes, memory.",
    ]
    if simulated:
        lines.append("Everything, if the seed of this simulation is known.")
    return "".join(f"- {line}\n" for line in lines)
