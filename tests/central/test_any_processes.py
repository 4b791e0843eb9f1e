"""Central training on any number of processes: the same loss and gradient, nothing twice, nobody waits for ever."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from conftest import ROOT
from sottovoce.central import Preparing, deal, steps_from
from sottovoce.distributed import Group
from sottovoce.errors import ConfigError
from sottovoce.features.specaugment import SpecAugment
from sottovoce.model.gradient import prepare_micro
from sottovoce.model.transformer_options import TransformerOptions
from sottovoce.randomness import Streams
from trainings import SMALL_MODEL, command_line, digests, run, started

lengths = some.lists(some.integers(50, 1600), min_size=1, max_size=20).map(np.array)


@given(some.lists(lengths, min_size=1, max_size=9), some.integers(1, 40), some.integers(0, 3))
def test_every_utterance_belongs_to_one_process(frames, processes, absent):
    hands = deal(frames, processes, len(frames) + absent)
    pieces = [piece for hand in hands for piece in hand]
    dealt = sorted((piece.place, row) for piece in pieces for row in range(piece.first, piece.last))
    assert dealt == [(place, row) for place, rows in enumerate(frames) for row in range(len(rows))]
    assert all(piece.first < piece.last for piece in pieces)
    if processes > len(frames) + absent:
        assert sum(map(bool, hands)) == min(processes, sum(map(len, frames)))  # nobody is idle
    else:
        assert [[piece.place for piece in hand] for hand in hands] == [
            list(range(rank, len(frames), processes)) for rank in range(processes)
        ]


@pytest.mark.parametrize("processes", [12, 16, 64])
def test_processes_have_about_as_much_to_do(processes):
    frames = [np.full(120, 200) for _ in range(8)]  # as much as in the paper, in short utterances
    loads = [
        sum(int(frames[piece.place][piece.first : piece.last].sum()) for piece in hand)
        for hand in deal(frames, processes, 8)
    ]
    assert max(loads) - 8 * 24_000 / processes <= 200  # an utterance at most


def test_pieces_have_the_draws_of_the_whole_micro_batch(make_store):
    store = make_store({"a": 7})
    rows = np.arange(7)[::-1]
    encoder = TransformerOptions(blocks=1, width=8, heads=2, mlp_width=8).make(30)
    augment = SpecAugment(frequency_shift=3)

    def prepared(*piece):
        return prepare_micro(store, rows, augment, Streams(0, (5,)), 3, encoder, piece or None)

    whole, parts = prepared(), [prepared(0, 3), prepared(3, 4), prepared(4, 7)]
    assert [len(part) for part in parts] == [3, 1, 3]
    assert np.concatenate([part.choices["position_shifts"] for part in parts]).tolist() == (
        whole.choices["position_shifts"].tolist()
    )
    heard = [part.batch.features[row, : part.batch.frames[row]] for part in parts for row in range(len(part))]
    for row, features in enumerate(heard):
        np.testing.assert_array_equal(features, whole.batch.features[row, : whole.batch.frames[row]])
    assert prepared(0, 7).dropout_seed == whole.dropout_seed
    assert len({part.dropout_seed for part in (whole, *parts[1:])}) == 3  # pieces do not repeat each other's dropout


def test_a_choice_without_a_value_per_utterance_is_refused_in_pieces(make_store):
    store = make_store({"a": 4})
    encoder = TransformerOptions(blocks=1, width=8, heads=2, mlp_width=8).make(30)
    encoder.draw_micro = lambda streams, place, _rows: {"speed": streams.of("speed", place).random(2)}
    arguments = (store, np.arange(4), None, Streams(0, (0,)), 0, encoder)
    assert prepare_micro(*arguments).choices["speed"].shape == (2,)
    with pytest.raises(ConfigError, match="choice speed has no value per utterance"):
        prepare_micro(*arguments, (0, 2))


@pytest.mark.parametrize("rank", [0, 2])
def test_steps_that_are_prepared_ahead_are_the_same(make_store, rank):
    store = make_store({"a": 9, "b": 5})
    encoder = TransformerOptions(blocks=2, width=8, heads=2, mlp_width=8, layer_drop=0.5).make(30)
    preparing = Preparing(store, SpecAugment(), 0, encoder, Group(rank, 3), 2)

    def prepared(*, prefetch):
        batches = steps_from(0, np.arange(14), store.frames_of(np.arange(14)), 4.0, 2, 0)
        steps = preparing.steps((next(batches) for _ in range(4)), prefetch=prefetch)
        return [(step.number, step.choices["kept_blocks"].tolist(), list(step.pieces)) for step in steps]

    now, ahead = prepared(prefetch=False), prepared(prefetch=True)
    assert [step[:2] for step in now] == [step[:2] for step in ahead]
    for (_, _, pieces), (_, _, others) in zip(now, ahead, strict=True):
        for (place, micro), (other_place, other) in zip(pieces, others, strict=True):
            assert (place, micro.dropout_seed) == (other_place, other.dropout_seed)
            np.testing.assert_array_equal(micro.batch.features, other.batch.features)


def test_any_number_of_processes_gives_the_same_gradient_and_loss(make_store, tmp_path):
    store = make_store({"a": 5, "b": 4})
    script = (
        "from pathlib import Path\n"
        "import central_gradients\n"
        "from sottovoce.workers import run_workers\n"
        "if __name__ == '__main__':\n"
        "    for processes in (1, 2, 4):\n"
        f"        arguments = (Path({str(store.path)!r}), Path({str(tmp_path)!r}))\n"
        "        run_workers(central_gradients.leave_gradients, arguments, processes, 1)\n"
    )
    (tmp_path / "main.py").write_text(script)
    path = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    subprocess.run([sys.executable, tmp_path / "main.py"], check=True, timeout=120, env={"PYTHONPATH": path})
    alone = torch.load(tmp_path / "1-0.pt")
    for processes in (2, 4):  # a micro-batch each; pieces, and in a small step nothing for somebody
        for rank in range(processes):
            found = torch.load(tmp_path / f"{processes}-{rank}.pt")
            for number, (loss, gradient) in alone.items():
                assert found[number][0] == pytest.approx(loss, rel=1e-6)
                difference = torch.linalg.vector_norm(found[number][1] - gradient)
                assert difference < 1e-6 * torch.linalg.vector_norm(gradient), (processes, rank, number)


@pytest.mark.slow
def test_three_processes_killed_and_resumed_end_with_the_same_bits(make_store, tmp_path):
    store = make_store({"a": 10, "b": 8})
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").write_text("b\n")
    data = {"train": f"{store.path}@{tmp_path}/a.txt", "dev": f"{store.path}@{tmp_path}/b.txt"}
    settings = (
        *SMALL_MODEL,
        *("central.micro_batch_seconds=4", "central.micro_batches=2", "central.steps=6", "central.evaluate_every=6"),
        *("central.checkpoint_every=2", "central.schedule.lr=0.01", "central.schedule.warmup=0"),
    )

    def words(folder: Path) -> list[str]:
        return command_line("central", folder, data, settings, workers=3)

    assert run(words(tmp_path / "whole")).returncode == 0
    process = started(words(tmp_path / "killed"), tmp_path / "killed", step=3)
    process.kill()
    process.wait()
    finished = run(words(tmp_path / "killed"))
    assert finished.returncode == 0, finished.stderr
    assert digests(tmp_path / "killed") == digests(tmp_path / "whole")
