"""Tables say where rows were trained, where that makes them differ by rounding."""

from types import SimpleNamespace

from sottovoce.bench.machine_notes import machine_notes
from sottovoce.runs.documents import RunConfig
from sottovoce.runs.machine import Machine, record_machine

HERE = Machine(cpu="A", instructions="AVX2", torch="2")


def row(out, name, *, processes=None, base=None):
    folder = out / name
    folder.mkdir()
    record_machine(folder, HERE.model_copy(update={"processes": processes}))
    place = None if base is None else str(out / "seed-key" / "last")
    RunConfig(config={"data": {"seed_model": place}}, data={"seed_model": base}).write(folder)
    return SimpleNamespace(row=SimpleNamespace(name=name), folders=[folder])


def test_rows_that_were_trained_alike_need_no_note(tmp_path):
    rows = [row(tmp_path, "seed", processes=2), row(tmp_path, "a", base="11" * 32), row(tmp_path, "b", base="11" * 32)]
    assert machine_notes(rows) == []


def test_central_rows_of_different_numbers_of_processes_are_noted(tmp_path):
    notes = machine_notes([row(tmp_path, "a", processes=2), row(tmp_path, "b", processes=16), row(tmp_path, "c")])
    assert notes[1:] == ["Processes: 2: a", "Processes: 16: b"]


def test_rows_from_two_trainings_of_one_seed_model_are_noted(tmp_path):
    rows = [row(tmp_path, name, base=digest * 32) for name, digest in (("a", "11"), ("b", "22"), ("c", "11"))]
    notes = machine_notes(rows)
    assert "different trainings of the seed model seed-key" in notes[0]
    assert notes[1:] == [f"From the model {'1' * 12}: a, c", f"From the model {'2' * 12}: b"]
