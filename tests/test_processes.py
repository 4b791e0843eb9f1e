import itertools
import subprocess
import sys

import pytest

from sottovoce.errors import SottoError
from sottovoce.processes import Background, map_ordered
from worker_tasks import die, fail_at_three, slow_first


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_tasks(workers):
    assert list(map_ordered(slow_first, range(12), workers)) == [number * number for number in range(12)]


def test_only_a_few_tasks_are_taken_before_their_turn():
    taken = []

    def tasks():
        for number in range(1000):
            taken.append(number)
            yield number

    results = map_ordered(slow_first, tasks(), 2)
    next(results)
    assert len(taken) <= 10
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_task_is_raised_here(workers):
    with pytest.raises(ValueError, match="three"):
        list(map_ordered(fail_at_three, range(10), workers))


def test_a_worker_that_dies_is_one_clear_error():
    with pytest.raises(SottoError, match="A worker process ended early"):
        list(map_ordered(die, range(4), 2))


UNGUARDED = {
    "prepare": "sv.prepare(sv.Table(file={table!r}), {out!r} + '-new', workers=2)",
    "train_federated": "sv.train_federated(sv.preset('tiny', TREE), {out!r}, train={store!r}, workers=2)",
}
TREE = {
    "model": {"blocks": 1, "width": 16, "heads": 2, "mlp_width": 32},
    "participation": {"population": 2, "cohort_size": 1},
    "federated": {"central_steps": 1, "local": {"steps": 1}},
}


@pytest.mark.parametrize("call", UNGUARDED)
def test_a_script_without_a_guard_gets_one_clear_line(call, make_store, tmp_path):
    store = make_store({"a": 1, "b": 1})
    places = {"table": str(tmp_path / "corpus" / "index.tsv"), "store": str(store.path), "out": str(tmp_path / "out")}
    script = tmp_path / "script.py"
    script.write_text(
        f"import sottovoce as sv\nTREE = {TREE!r}\n"
        f"try:\n    {UNGUARDED[call].format(**places)}\nexcept sv.ConfigError as error:\n    print(error)\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == (
        "In a script, work with several workers starts below `if __name__ == '__main__':`. Add that line.\n"
    )
    assert ran.stderr == ""


def counting(steps, taken):
    """Take steps, one at a time; fail at a negative number."""
    for number in steps:
        taken.append(number)
        if number < 0:
            raise ValueError("negative")
        yield
    return len(taken)


def test_background_work_returns_its_result_raises_its_error_and_can_be_stopped():
    assert Background(counting(range(5), [])).result() == 5
    failing = Background(counting([0, -1], []))
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            failing.result()
    taken = []
    endless = Background(counting(itertools.count(), taken))
    endless.stop()
    steps = len(taken)
    with pytest.raises(RuntimeError, match="stopped before its end"):
        endless.result()
    assert len(taken) == steps
