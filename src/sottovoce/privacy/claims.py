"""What can be said of a run: its epsilon at other sizes, of several runs together, and the statement a reviewer signs.

Everything is read from the ledger; nothing is taken from the model or from private data.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.accounting import Event, Spent, deltas, pld_with, rdp_with, rounded_up
from sottovoce.privacy.ledger import LEDGER_FILE, read_ledger
from sottovoce.privacy.mechanism import plain_mechanism

DELTAS = (1e-6, 1e-8, 1e-9, 1e-10, 1e-12)
FALSE_POSITIVES = (0.001, 0.01, 0.1)


@dataclass(frozen=True)
class Account:
    """What a run's ledger says."""

    run: Path
    header: Mapping[str, Any]
    releases: int
    changes: tuple[Mapping[str, Any], ...] = ()

    @property
    def event(self) -> Event:
        """One release of the run; raises where it has no guarantee."""
        if self.header["adjacency"] is None:
            raise PrivacyError(f"{self.run} has no epsilon: {self.header['guarantee']}.")
        return Event(self.header["z"], self.header["sampling_prob"], self.header["adjacency"])

    @property
    def extra(self) -> float:
        """What the noise's sampler adds to epsilon."""
        return self.extra_after(self.releases)

    def extra_after(self, releases: int) -> float:
        """What it adds after so many releases."""
        return releases * float(self.header["sampler_epsilon"] or 0.0)

    @property
    def target_delta(self) -> float:
        """The delta that the run was made for."""
        return float(self.header["target_delta"])


def open_account(run: Path) -> Account:
    """Read the ledger of a run; raise where its chain is broken."""
    path = run / LEDGER_FILE
    if not path.is_file():
        raise DataError(f"There is no {path}. Give the folder of a federated run.")
    lines = read_ledger(path)
    if not lines:
        raise DataError(f"{path} is empty. Give the folder of a federated run that was started.")
    changes = tuple(line["now"] for line in lines if "now" in line)
    return Account(run, lines[0], sum("release" in line for line in lines), changes)


def claimed(account: Account, cohort_size: float, population: int, central_steps: int | None) -> Spent:
    """Return what a run with the same noise and other sizes would spend."""
    _ = account.event
    event = event_at(str(account.run), account.header, cohort_size, population)
    return {event: account.releases if central_steps is None else central_steps}


def event_at(what: str, kept: Mapping[str, Any], cohort_size: float, population: int) -> Event:
    """Return one release at other sizes; `kept` are the noise and who takes part, of something with a guarantee."""
    if kept["weight"] != "one" or kept["q_min"] is not None:
        raise PrivacyError(f"{what} weighs its users: a claim at other sizes needs their weights too.")
    return plain_mechanism(kept["sigma_dp"], cohort_size, population, kept["sampling"]).event


def composed(accounts: Sequence[Account]) -> Spent:
    """Return what several runs on one population spend together."""
    units = {account.header["unit"] for account in accounts}
    if len(units) > 1:
        raise PrivacyError(f"These runs protect different things, which do not add up: {', '.join(sorted(units))}.")
    spent: Counter[Event] = Counter()
    for account in accounts:
        spent[account.event] += account.releases
    return dict(spent)


def true_positives(spent: Spent, false_positives: float) -> float | None:
    """Return the best rate at which an attacker tells that a user took part, at a rate of false alarms.

    It is min over epsilon of e^epsilon * false_positives + delta(epsilon), by the tight accounting.
    """
    highest = math.log(1 / false_positives)  # beyond it the bound is 1
    epsilons = [highest * place / 400 for place in range(401)]
    found = deltas(spent, epsilons)
    if found is None:
        return None
    rates = [math.exp(epsilon) * false_positives + float(one) for epsilon, one in zip(epsilons, found, strict=True)]
    return min(1.0, *rates)


def statement(account: Account) -> str:
    """Return the privacy statement of a run, in Markdown."""
    header = account.header
    title = f"# Privacy statement of {account.run.name}\n\n"
    if header["adjacency"] is None:
        return f"{title}This run has no privacy guarantee: {header['guarantee'].removeprefix('none: ')}.\n"
    spent: Spent = {account.event: account.releases}
    simulated = header["noise"] != "secure"
    return (
        f"{title}{_summary(account, spent, simulated)}\n## What is protected\n\n{_protected(header)}\n"
        f"## Mechanism\n\n{_mechanism(account)}\n## Epsilon at several deltas\n\n{_table(spent, account.extra)}\n"
        f"## What an attacker can tell\n\n{_attack(spent, account.extra)}\n"
        f"## What is not covered\n\n{_not_covered(simulated)}"
    )


def _summary(account: Account, spent: Spent, simulated: bool) -> str:
    by_rdp = rdp_with(account.extra, spent, account.target_delta)
    by_pld = pld_with(account.extra, spent, account.target_delta)
    tight = "" if by_pld.epsilon is None else f", {rounded_up(by_pld.epsilon)} by privacy loss distributions"
    text = (
        f"After {account.releases} releases: epsilon {rounded_up(by_rdp.epsilon)} by Renyi DP{tight}, "
        f"at delta {account.target_delta:g}.\n"
    )
    if simulated:
        text += (
            "\n**This was a simulation.** Cohorts and noise came from a seed: whoever knows it can subtract the noise. "
            "The numbers hold for a run with secure randomness and the same settings.\n"
        )
    return text


def _protected(header: Mapping[str, Any]) -> str:
    return (
        f"- Unit: {header['unit']}.\n- Adjacency: {header['adjacency']}.\n"
        f"- Population: K = {header['population']:,}, a public number; it was not counted from the data.\n"
        "- Released, and covered: every model, its optimizer's state, and the public part of the log.\n"
    )


def _mechanism(account: Account) -> str:
    header = account.header
    kinds = {
        "poisson": "every user joins each step independently",
        "fixed": "a set of fixed size, drawn without replacement",
        "everyone": "everyone in every step",
    }
    lines = [
        f"Sampling: {kinds[header['sampling']]}; expected cohort S = {header['cohort_size']:g}, "
        f"probability q = {header['sampling_prob']:.6g}.",
        f"Clipping: {header['clipping']} (rule {header['rule']}), C = {header['clip_norm']:g}; each user's update is "
        "rounded to integers whose norm is at most C, in exact arithmetic.",
        f"Sum divided by {header['divisor']:g}, public; weights: {header['weight']}.",
        f"Noise: Gaussian, once per release, sigma_dp = {header['sigma_dp']:g} (std of the average in units of C), "
        f"z = {header['z']:.6g} times what one user can change; {header['noise']}.",
        f"Composition: {account.releases} releases of this mechanism, adaptively chosen.",
        f"Seed model: {header['seed_model'] or 'none'}.",
        f"Code: {header['code']}; configuration sha256 {header['config']}.",
    ]
    lines += [f"Later: {', '.join(f'{key} {value}' for key, value in change.items())}." for change in account.changes]
    return "".join(f"- {line}\n" for line in lines)


def _table(spent: Spent, extra: float) -> str:
    rows = ["| delta | epsilon (RDP) | epsilon (PLD) |", "|---|---|---|"]
    for delta in DELTAS:
        by_rdp, by_pld = rdp_with(extra, spent, delta), pld_with(extra, spent, delta)
        tight = "refused" if by_pld.epsilon is None else rounded_up(by_pld.epsilon)
        rows.append(f"| {delta:g} | {rounded_up(by_rdp.epsilon)} | {tight} |")
    return "\n".join(rows) + "\n"


def _attack(spent: Spent, extra: float) -> str:
    found = {rate: true_positives(spent, rate) for rate in FALSE_POSITIVES}
    rates = {rate: min(1.0, one * math.exp(extra)) for rate, one in found.items() if one is not None}
    if len(rates) < len(found):
        return "Not computed: privacy loss distributions are refused at this epsilon, which protects nobody.\n"
    rows = ["| false alarms | correct accusations, at most |", "|---|---|"]
    rows += [f"| {100 * rate:g} % | {rounded_up(100 * best)} % |" for rate, best in rates.items()]
    return (
        "Someone who sees everything that was released, and knows all other users' audio, guesses whether one user "
        "took part (the f-DP reading):\n\n" + "\n".join(rows) + "\n"
    )


def _not_covered(simulated: bool) -> str:
    lines = [
        "The data of the seed model, and whatever the seed model reveals.",
        "Choices made by looking at the users' data: hyper-parameters, the number of runs, which one is published. "
        "Runs on the same users add up: `sotto privacy compose`.",
        "Diagnostics: everything under `not_private` in metrics.jsonl, TensorBoard events, config.json (it has a hash "
        "of the data). They stay with whoever ran the training.",
        "The dev and test sets: evaluations are not private.",
        "The server: it sees every update before the noise. Secure aggregation, or trust in it, is assumed.",
        "Side channels: time, traffic, crashes, memory.",
    ]
    if simulated:
        lines.append("Everything, if the seed of this simulation is known.")
    return "".join(f"- {line}\n" for line in lines)
