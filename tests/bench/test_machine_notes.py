"""Tables say where rows were trained, where that makes them differ by rounding."""

from dataclasses import replace
from types import SimpleNamespace

from bench_counts import run_result
from sottovoce.bench.machine_notes import machine_notes
from sottovoce.bench.preset import load_bench
from sottovoce.bench.results import StartedFrom, row_result
from sottovoce.runs.machine import Machine

HERE = Machine(cpu="A", instructions="AVX2", torch="2")


def row(name, *, processes=None, base=None, machine=HERE):
    bench = load_bench("demo")
    run = replace(
        run_result(0, {"dev": 0.5}),
        machines=[machine.model_copy(update={"processes": processes})],
        started_from=None if base is None else StartedFrom(key="seed-key", sha256=base),
    )
    result = row_result(bench, bench.size("mini"), bench.size("mini").rows[0], [run])
    return replace(result, row=SimpleNamespace(name=name))


def test_rows_of_different_machines_are_noted():
    notes = machine_notes([row("a"), row("b", machine=HERE.model_copy(update={"cpu": "B"}))])
    assert notes[1:] == ["Trained on A (AVX2), torch 2: a", "Trained on B (AVX2), torch 2: b"]


def test_rows_that_were_trained_alike_need_no_note():
    rows = [row("seed", processes=2), row("a", base="11" * 32), row("b", base="11" * 32)]
    assert machine_notes(rows) == []


def test_central_rows_of_different_numbers_of_processes_are_noted():
    notes = machine_notes([row("a", processes=2), row("b", processes=16), row("c")])
    assert notes[1:] == ["Processes: 2: a", "Processes: 16: b"]


def test_rows_from_two_trainings_of_one_seed_model_are_noted():
    rows = [row(name, base=digest * 32) for name, digest in (("a", "11"), ("b", "22"), ("c", "11"))]
    notes = machine_notes(rows)
    assert "different trainings of the seed model seed-key" in notes[0]
    assert notes[1:] == [f"From the model {'1' * 12}: a; c", f"From the model {'2' * 12}: b"]


def test_rows_of_unknown_machines_are_named():
    unknown = row("b, S=8")
    rows = [row("a"), replace(unknown, runs=[replace(run, machines=[]) for run in unknown.runs])]
    assert machine_notes(rows) == ["On which type of machine these rows were trained was not recorded: b, S=8."]
