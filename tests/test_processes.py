import pytest

from sottovoce.errors import SottoError
from sottovoce.processes import map_ordered
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
