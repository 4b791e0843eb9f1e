"""The time that is left, and how it is said."""

import pytest

from sottovoce.runs.pace import Pace, duration


def test_time_left_follows_the_steps_of_late():
    pace = Pace(0.0)
    assert pace.seconds_for(10) is None
    for step in range(1, 101):
        pace.step_done(10.0 * step)  # slow at first
    for step in range(1, 61):
        pace.step_done(1000.0 + step)
    assert pace.seconds_for(50) == pytest.approx(50.0)


def test_an_evaluation_counts_by_its_share_and_not_as_the_pace():
    pace, now = Pace(0.0), 0.0
    for step in range(1, 101):
        now += 1.0 + (50.0 if step % 50 == 0 else 0.0)
        pace.step_done(now)
    assert pace.seconds_for(100) == pytest.approx(200.0)  # 100 steps of 1 s, two pauses of 50 s


def test_a_pace_is_known_after_some_steps_or_a_minute():
    quick, slow = Pace(0.0), Pace(0.0)
    for step in range(1, 6):
        assert not quick.known
        quick.step_done(0.1 * step)
    slow.step_done(100.0)
    assert quick.known
    assert slow.known


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (89, "89 s"), (720, "12 min"), (12_000, "3 h 20 min"), (7200, "2 h"), (159_797, "44 h 23 min"),
     (190_800, "2 days 5 h"), (172_800, "2 days"), (9e7, "1,041 days 16 h")],
)  # fmt: skip
def test_durations_are_said_as_people_say_them(seconds, said):
    assert duration(seconds) == said
