"""Audit the mechanism many times: correct code over 20 seeds, every planted fault, and what sizes can detect.

    python benchmarks/audit.py [--json docs/audit.json] [--page docs/audit.md] [--summary docs/privacy.md] [PART ...]

Parts: correct, faults, sizes, noise, alarms, speakers. Each is kept in the JSON as soon as it is done; the page's
tables are written from all of it. All audits but `noise` and `alarms` are real runs; those two simulate projections.
"""

import argparse
import json
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from planted_faults import FAULTS
from sottovoce.auditing.auditor import audit
from sottovoce.auditing.one_run import binomial_epsilon, exceeds_curve, gaussian_floor, ranked_guesses
from sottovoce.auditing.verdict import Audit
from sottovoce.config import resolve
from sottovoce.privacy.accounting import short_number
from sottovoce.privacy.tight import gaussian_epsilon
from sottovoce.reports.markdown import write_section

SEEDS, FAULT_SEEDS, SPEAKER_SEEDS, SIMULATED = 20, 5, 3, 2000
DELTA = 1e-5
ONE_RELEASE = {"sampling_prob": 1.0, "central_steps": 1}


def figures(found: Audit, seconds: float) -> dict[str, Any]:
    """Return what the tables need of an audit."""
    kept = ("verdict", "claim", "bound", "bound_of_any_mechanism", "canaries", "present", "reach", "releases", "seed")
    document = found.document()
    mechanism = {key: document["mechanism"][key] for key in ("z", "sampling_prob", "population", "clipping", "weight")}
    return {**{key: document[key] for key in kept}, **mechanism, "seconds": round(seconds, 1)}


def audited(store: Path, fault: str | None = None, seed: int = 0, **options: Any) -> dict[str, Any]:
    """Audit once, with a fault or without."""
    with pytest.MonkeyPatch.context() as patch:
        if fault is not None:
            FAULTS[fault](patch)
        began = time.monotonic()
        found = audit(resolve("audit", {"seed": seed}), store=store, **options)
        _ = found.bound
    row = {"fault": fault, **figures(found, time.monotonic() - began)}
    print(json.dumps(row), flush=True)
    return row


def correct(store: Path) -> Iterator[dict[str, Any]]:
    """Audit correct code with every seed."""
    for seed in range(SEEDS):
        yield audited(store, seed=seed)


def faults(store: Path) -> Iterator[dict[str, Any]]:
    """Audit every fault with several seeds."""
    for fault in FAULTS:
        for seed in range(FAULT_SEEDS):
            yield audited(store, fault, seed)


def sizes(store: Path) -> Iterator[dict[str, Any]]:
    """Audit one release of everyone with several numbers of canaries and epsilons."""
    for canaries in (100, 1000, 10_000):
        for z in (4.0, 2.0, 1.0, 0.5):
            yield audited(store, canaries=canaries, z=z, **ONE_RELEASE)


def speakers(store: Path) -> Iterator[dict[str, Any]]:
    """Audit with canaries that are speakers."""
    for fault in (None, *(name for name in FAULTS if name != "cohort reused")):
        for seed in range(SPEAKER_SEEDS):
            yield audited(store, fault, seed, canaries=100, kind="speakers", z=4.0, sampling_prob=1.0, central_steps=4)


def _gaussian(rng: np.random.Generator, canaries: int, mu: float) -> Any:
    coins = rng.random(canaries) < 0.5
    return ranked_guesses(mu * coins + rng.standard_normal(canaries), coins)


def noise(_: Path) -> Iterator[dict[str, Any]]:
    """Simulate audits of one Gaussian release whose noise is too small by some factor."""
    for canaries in (100, 1000, 2000, 10_000):
        for factor in (0.8, 0.7, 0.6, 0.5, 0.35, 0.1):
            rng, floor, found = np.random.default_rng(canaries), gaussian_floor(0.5), 0
            for _round in range(100):
                guesses = _gaussian(rng, canaries, 0.5 / factor)
                found += any(exceeds_curve(one, canaries, floor, 0.05 / len(guesses)) for one in guesses)
            yield {"canaries": canaries, "factor": factor, "audits": 100, "refuted": found}


def alarms(_: Path) -> Iterator[dict[str, Any]]:
    """Simulate audits of a correct Gaussian release, and count how often it is refuted."""
    for canaries, mu in ((200, 0.5), (1000, 0.5), (1000, 2.0)):
        rng, floor, refuted, bounds = np.random.default_rng(canaries + round(10 * mu)), gaussian_floor(mu), 0, []
        for _round in range(SIMULATED):
            guesses = _gaussian(rng, canaries, mu)
            refuted += any(exceeds_curve(one, canaries, floor, 0.05 / len(guesses)) for one in guesses)
            bounds.append(binomial_epsilon(guesses, canaries, DELTA))
        epsilon = gaussian_epsilon(1 / mu, DELTA)
        above = sum(bound > epsilon for bound in bounds)
        yield {"canaries": canaries, "mu": mu, "epsilon": epsilon, "audits": SIMULATED, "refuted": refuted,
               "any_above": above, "any_largest": max(bounds)}  # fmt: skip


PARTS = {part.__name__: part for part in (correct, faults, sizes, noise, alarms, speakers)}


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _table(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    return "\n".join([_row(*header), _row(*("---" for _ in header)), *(_row(*row) for row in rows)]) + "\n"


def _spread(values: list[float]) -> str:
    return f"{min(values):.2f} / {np.median(values):.2f} / {max(values):.2f}"


def _by_fault(rows: list[dict[str, Any]]) -> str:
    """Return a table with a row for correct code and for every fault."""
    lines = []
    for fault in (None, *FAULTS):
        group = [row for row in rows if row["fault"] == fault]
        if group:
            refuted = sum(row["verdict"] == "VIOLATED" for row in group)
            bounds = [_spread([row[key] for row in group]) for key in ("bound", "bound_of_any_mechanism")]
            name = fault or "none (correct code)"
            lines.append((name, len(group), f"{group[0]['claim']:.3f}", *bounds, f"{refuted} of {len(group)}"))
    return _table(("fault", "seeds", "claim", "bound", "bound of any mechanism", "refuted"), lines)


def faults_table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return what audits say of correct code and of every fault."""
    first = found["correct"][0]
    text = (
        f"`sotto privacy audit` as it is: {first['canaries']:,} canaries, K = {first['population']:,}, z = "
        f"{first['z']:.4g}, q = {first['sampling_prob']:.4g}, {first['releases']} releases, clipping "
        f"{first['clipping']}, weight {first['weight']}, delta {short_number(DELTA)}, 95 % confidence; one audit took "
        f"{np.median([row['seconds'] for row in found['correct']]):.0f} s (median) on a busy machine with two cores. "
        "Bounds are smallest / median / largest."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False) + "\n\n" + _by_fault(found["correct"] + found["faults"])


def sizes_tables(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return what audits of several sizes can detect."""
    text = "**Sizes.** Correct code, everyone takes part in one release, one audit each:\n\n"
    text += _table(
        ("canaries", "z", "claim", "bound", "bound of any mechanism", "verdict"),
        [(f"{row['canaries']:,}", f"{row['z']:.3g}", f"{row['claim']:.2f}", f"{row['bound']:.2f}",
          f"{row['bound_of_any_mechanism']:.2f}", row["verdict"]) for row in found["sizes"]],
    )  # fmt: skip
    text += "\n**Noise that is too small.** Share of 100 simulated audits that are refuted, one release, z = 2:\n\n"
    factors = sorted({row["factor"] for row in found["noise"]}, reverse=True)
    counts = {(row["canaries"], row["factor"]): row["refuted"] for row in found["noise"]}
    text += _table(
        ("canaries", *(f"noise x {factor:g}" for factor in factors)),
        [(f"{number:,}", *(f"{counts[number, factor]} %" for factor in factors))
         for number in sorted({row["canaries"] for row in found["noise"]})],
    )  # fmt: skip
    text += "\n**False alarms.** Simulated audits of a correct Gaussian; at most 5 % may be refuted:\n\n"
    text += _table(
        ("canaries", "epsilon", "audits", "refuted", "bound of any mechanism above epsilon", "its largest"),
        [(f"{row['canaries']:,}", f"{row['epsilon']:.2f}", f"{row['audits']:,}", row["refuted"], row["any_above"],
          f"{row['any_largest']:.2f}") for row in found["alarms"]],
    )  # fmt: skip
    text += "\n**Speakers** (`--kind speakers`): 100 canaries, four releases of everyone, z = 4:\n\n"
    return text + _by_fault(found["speakers"])


def main() -> None:
    """Run the parts that are asked for, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--json", type=Path, default=Path("docs/audit.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/audit.md"))
    parser.add_argument("--summary", type=Path, default=Path("docs/privacy.md"), help="the page with the faults")
    parser.add_argument("--store", type=Path, default=Path("build/audit"))
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:
        rows = list(PARTS[part](options.store))
        known = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps(known | {part: rows}, indent=1) + "\n")
    found = json.loads(options.json.read_text())
    if found.keys() >= PARTS.keys():
        write_section(options.summary, "audit", faults_table(found))
        write_section(options.page, "audit", sizes_tables(found))


if __name__ == "__main__":
    main()
