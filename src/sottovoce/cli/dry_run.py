"""What `sotto train ... --dry-run` prints."""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sottovoce.cli.console import note, print_json, print_table
from sottovoce.files import gigabytes

if TYPE_CHECKING:
    from sottovoce.config import Resolved
    from sottovoce.distributed import Group
    from sottovoce.runs.documents import TrainingKind


def show_dry_run(kind: "TrainingKind", resolved: "Resolved", run: Path, workers: int, *, as_json: bool) -> None:
    """Prepare and measure a training with its workers, and print the figures; write nothing."""
    from sottovoce.workers import run_workers

    hardware = resolved.config.hardware
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "dry_run.json"
        arguments = (kind, resolved, run, result)
        run_workers(_worker, arguments, workers, hardware.threads_per_worker, limit=hardware.processes)
        planned = json.loads(result.read_bytes()) if result.exists() else None
    if planned is None:  # under torchrun, only rank 0 has it
        return
    if as_json:
        print_json({"preset": resolved.name, **planned})
        return
    print_table(f"{run}: a {kind} training that is not started", ["", ""], _rows(planned), text_columns=2)
    _print_notes(planned)


def _worker(group: "Group", kind: "TrainingKind", resolved: "Resolved", run: Path, result: Path) -> None:
    from sottovoce.estimate.dry_run import dry_run

    dry_run(group, kind, resolved, run, result)


def _rows(planned: dict[str, Any]) -> list[list[str]]:
    from sottovoce.runs.pace import duration

    step, left = planned["step"], _last_step(planned) - planned["steps_done"]
    done = f", {planned['steps_done']:,} of them done" if planned["steps_done"] else ""
    rows = [["steps", f"{planned['steps']:,}{done}"]]
    rows.append(["parameters that train", _parameters(planned)])
    rows += _central_work(planned) if step["users"] is None else _federated_work(planned)
    rows.append(["audio in a step", f"{duration(step['audio_seconds'])}, counted as often as it is heard"])
    rows.append(["time of a step", f"{step['seconds']:.3g} s with {_processes(planned['processes'])}"])
    if planned["evaluations"]:
        seconds = planned["seconds_per_evaluation"]
        each = "less than a second" if seconds < 1 else duration(seconds)
        rows.append(["evaluations on dev", f"{planned['evaluations']:,} of {each} each"])
    rows.append(["time of the run", f"about {duration(planned['seconds_left'])} for {left:,} steps{_limit(planned)}"])
    if planned["privacy"] is not None:
        rows.append(["epsilon at the end", _epsilon(planned["privacy"])])
    rows.append(["disk", f"{gigabytes(planned['disk_bytes'])}; {gigabytes(planned['disk_free_bytes'])} are free"])
    return rows


def _last_step(planned: dict[str, Any]) -> int:
    """Return the step at which the run will end: the last one, or where its time is over."""
    limit: int | None = planned["minutes_end_at"]
    return int(planned["steps"]) if limit is None else limit


def _limit(planned: dict[str, Any]) -> str:
    return "" if planned["minutes_end_at"] is None else ", where central.max_minutes ends it"


def _parameters(planned: dict[str, Any]) -> str:
    frozen = "" if planned["trainable"] == planned["parameters"] else f"; the model has {planned['parameters']:,}"
    return f"{planned['trainable']:,} in {planned['layers']:,} layers{frozen}"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count:,} processes"


def _central_work(planned: dict[str, Any]) -> list[list[str]]:
    step = planned["step"]
    passes = _last_step(planned) / step["steps_per_epoch"]
    return [
        ["utterances in a step", f"{step['utterances']:,.0f}"],
        ["passes over the data", f"{passes:.3g}, of {step['steps_per_epoch']:,} steps each"],
    ]


def _federated_work(planned: dict[str, Any]) -> list[list[str]]:
    from sottovoce.runs.pace import duration

    step, local = planned["step"], planned["step"]["local"]
    return [
        ["users in a step", f"{step['users']:.3g} on average"],
        ["local work of a user", planned["local_work"]],
        [
            "that is, on average",
            f"{local['steps']:.3g} local steps (at most {local['most_steps']:,}) on "
            f"{duration(local['audio_seconds'])} of audio; a user has {duration(local['own_seconds'])}",
        ],
    ]


def _epsilon(privacy: dict[str, Any]) -> str:
    from sottovoce.privacy.accounting import rounded_up, short_exponents, short_number

    if privacy["no_guarantee"] is not None:
        return f"none: {privacy['no_guarantee']}"
    tight = privacy["epsilon_pld"]
    by_pld = "" if tight is None else f", {short_exponents(rounded_up(tight))} (PLD)"
    by_rdp, delta = short_exponents(rounded_up(privacy["epsilon_rdp"])), short_number(privacy["target_delta"])
    text = f"{by_rdp} (RDP){by_pld} at delta {delta}"
    return text if privacy["no_pld"] is None else f"{text}; PLD refused: {privacy['no_pld']}"


def _print_notes(planned: dict[str, Any]) -> None:
    step = planned["step"]
    note(
        f"Measured now on this machine, for {step['measured_seconds']:.1f} s: {step['measured']}. Other work on the "
        "machine changes it."
    )
    if planned["more_than_a_day"]:
        note(f"This run would take more than a day. To make it shorter: {planned['shorter']}.")
    if planned["privacy"] is not None and planned["privacy"]["budget_steps"] is not None:
        note(f"privacy.budget ends the run after {planned['privacy']['budget_steps']:,} steps, without other runs.")
    if planned["disk_bytes"] > planned["disk_free_bytes"]:
        note("The disk has too little room for this run.")
    if planned["private_figures"]:
        note("Audio, local steps and times depend on the users: keep these figures to yourself.")
    note("Nothing was written.")
