"""What `sotto data prepare` does with a corpus: prepare it and summarise the store, or print a plan."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sottovoce.cli.console import ProgressDisplay, counted, note, print_json, print_table, say
from sottovoce.data.bandwidths import store_note
from sottovoce.data.corpora import AnyCorpus, Synthetic
from sottovoce.data.joining import Joining
from sottovoce.data.preparation import MAX_REJECTED, Request, prepare, require_bandwidth
from sottovoce.data.preparation_cost import (
    PreparationCost,
    estimate_preparation,
    estimate_synthetic_preparation,
    measure_extraction_speed,
)
from sottovoce.data.spelling import REJECT, UnknownLetters
from sottovoce.data.store import INFO, REJECTED, Store
from sottovoce.data.writer import read_rejected
from sottovoce.files import gigabytes, require_free


def run_preparation(
    corpus: AnyCorpus,
    out: Path,
    *,
    joining: Joining | None = None,
    unknown_letters: UnknownLetters = REJECT,
    bandwidth_hz: int | None = None,
    max_rejected: float,
    workers: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Prepare a store and print a summary; with `dry_run`, print the plan instead and write nothing."""
    if dry_run:
        print_plan(
            corpus,
            out,
            joining=joining,
            unknown_letters=unknown_letters,
            bandwidth_hz=bandwidth_hz,
            max_rejected=max_rejected,
            workers=workers,
            as_json=as_json,
        )
        return
    started = time.monotonic()
    existed = (out / INFO).exists()
    with ProgressDisplay() as progress:
        store = prepare(
            corpus,
            out,
            joining=joining,
            unknown_letters=unknown_letters,
            bandwidth_hz=bandwidth_hz,
            max_rejected=max_rejected,
            workers=workers,
            progress=progress,
        )
    if existed:
        note(f"{out} already exists, made from the same corpus with the same options: nothing was done.")
    _print_summary(store, time.monotonic() - started, as_json, worked=not existed)


def _print_summary(store: Store, elapsed: float, as_json: bool, *, worked: bool) -> None:
    info = store.info
    reasons = Counter(str(rejection.reason) for rejection in read_rejected(store.path))
    if as_json:
        print_json(
            {
                "store": str(store.path),
                "label": info.label,
                "utterances": info.utterances,
                "speakers": info.speakers,
                "hours": info.seconds / 3600,
                "rejected": info.rejected,
                "reasons": dict(reasons),
                "unwritable": len(store.full_references),
                "hash": info.hash,
                "elapsed_seconds": elapsed,
            }
        )
        return
    rows = [
        ["utterances", f"{info.utterances:,}"],
        ["speakers", f"{info.speakers:,}"],
        ["hours", f"{info.seconds / 3600:.2f}"],
        ["rejected", f"{info.rejected:,}"],
        *([f"  {reason}", f"{count:,}"] for reason, count in reasons.most_common()),
    ]
    if store.full_references:
        rows.append(["with characters outside the token set", f"{len(store.full_references):,}"])
    if worked:
        rows += [["elapsed seconds", f"{elapsed:.1f}"], ["times real time", f"{info.seconds / elapsed:.0f}"]]
    print_table(f"{store.path} ({info.label})", ["", ""], rows)
    if line := store_note(store):
        note(line)
    if info.rejected:
        note(f"The rejected utterances and the reasons are in {store.path / REJECTED}.")


@dataclass(frozen=True)
class _Plan:
    """The store that a preparation would make, and its cost."""

    label: str
    speakers: int
    rejected: int
    cost: PreparationCost
    seconds: float


def print_plan(
    corpus: AnyCorpus,
    out: Path,
    *,
    joining: Joining | None = None,
    unknown_letters: UnknownLetters = REJECT,
    bandwidth_hz: int | None = None,
    max_rejected: float = MAX_REJECTED,
    workers: int,
    as_json: bool,
) -> None:
    """Print the expected size and time of a preparation; a disk that is too small is an error here too."""
    corpus.check()
    require_bandwidth(bandwidth_hz)
    plan = _plan(Request(corpus, joining, unknown_letters, bandwidth_hz), out, workers)
    cost = plan.cost
    require_free(out, cost.bytes)
    if as_json:
        print_json(
            {
                "dry_run": True,
                "store": str(out),
                "label": plan.label,
                "utterances": cost.utterances,
                "speakers": plan.speakers,
                "rejected_so_far": plan.rejected,
                "hours": cost.seconds / 3600,
                "bytes": round(cost.bytes),
                "seconds": plan.seconds,
            }
        )
        return
    if plan.rejected > max_rejected * (cost.utterances + plan.rejected):
        note(
            f"The preparation would stop: {plan.rejected:,} unusable utterances exceed --max-rejected {max_rejected:g}."
        )
    if (out / INFO).exists():
        note(f"{out} already exists and would not be overwritten.")
    say(
        f"Would make {out} from {plan.label}: {cost.utterances:,} utterances of {plan.speakers:,} speakers, about "
        f"{cost.seconds / 3600:.1f} h of audio, {gigabytes(cost.bytes)}, in about {plan.seconds:.0f} s with "
        f"{counted(workers, 'worker')}. Already known to be unusable: {counted(plan.rejected, 'utterance')}."
    )


def _plan(request: Request, out: Path, workers: int) -> _Plan:
    """Estimate a preparation; for a corpus on disk, from a sample of its files."""
    corpus = request.corpus
    if isinstance(corpus, Synthetic):
        cost, speed = estimate_synthetic_preparation(corpus), corpus.expected_speed()
        label, speakers, rejected = corpus.label, corpus.speakers, 0
    else:
        with ProgressDisplay() as progress:
            manifest = request.manifest(out, workers=workers, progress=progress)
        cost, speed = estimate_preparation(manifest), measure_extraction_speed(manifest)
        label, speakers, rejected = manifest.label, len(manifest.table["speaker"].unique()), len(manifest.rejected)
    return _Plan(label, speakers, rejected, cost, cost.seconds / max(speed * workers, 1e-9))
