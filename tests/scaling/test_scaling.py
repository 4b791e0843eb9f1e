"""The laws, simulations and projections of docs/scaling.md: worked arithmetic, and agreement with the estimate."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from sottovoce.distributed import Group
from sottovoce.estimate.devices import A100
from sottovoce.estimate.run_cost import estimate

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "scaling"))
from documents import MeasuredStep, Measurements, Part, Point, UserTime
from fits import fit, user_law
from page import write_page
from projection import Rates, as_it_is, sharded
from setting import Setting, write_users
from stragglers import EPOCHS, RULES, SORTED_QUEUE, STEPS, TODAY, mean_cost, simulate
from transport import Int32Sum, by_node_first, reduce_to_leader, scattered
from validation import from_law, from_user_times, recorded_shares, shares_of
from wording import digits, duration, line, percent, wrapped
from worker_steps import DEALT, ENGINE, watched_steps

PARAMETERS = 255_800_864
MEASURED = Path(__file__).parents[2] / "docs" / "scaling.json"


def test_a_line_is_recovered_and_small_sizes_count_as_much_as_large_ones():
    xs = [1.0, 10.0, 1e6]
    law = fit(xs, [3 + 0.5 * x for x in xs])
    assert (law.fixed, law.per_unit) == pytest.approx((3, 0.5))
    assert law.worst < 1e-9
    flat = fit([1.0, 10.0, 100.0], [5.0, 4.0, 3.0])
    assert flat.per_unit == 0  # never negative
    assert flat.worst == pytest.approx(0.3, abs=0.1)


def test_a_simulation_repeats_to_the_bit_and_knows_its_rules():
    for rule in RULES:
        first, second = (simulate(rule, STEPS, 64, 8, 0.1) for _ in range(2))
        assert first == second
        assert all(outcome.seconds >= outcome.bound * (1 - 1e-12) for outcome in first.outcomes)
    assert simulate(SORTED_QUEUE, STEPS, 1024, 64, 0.1).idle < simulate(TODAY, STEPS, 1024, 64, 0.1).idle


def test_only_a_limit_on_audio_helps_where_the_longest_user_decides():
    by_name = {rule.name: simulate(rule, EPOCHS, 1024, 64, 0.0).idle for rule in RULES}
    free = [idle for name, idle in by_name.items() if "limited" not in name]
    limited = [idle for name, idle in by_name.items() if "limited" in name]
    assert max(limited) < 0.2 < min(free)


@pytest.mark.parametrize("workers", [8, 64])
def test_the_simulation_agrees_with_the_estimate(workers):
    """The estimate shares out stratified cohorts by audio; the mean must agree, and the waiting nearly."""
    expected = estimate(STEPS.config, STEPS.audio, A100, workers, "tf32").step_seconds["local_work"]
    summary = simulate(TODAY, STEPS, 1024, workers, 0.0)
    assert 1024 * mean_cost(STEPS) / workers * summary.over_ideal == pytest.approx(expected, rel=0.03)


def test_no_final_int32_sum_leaves_its_range_and_partial_sums_may_wrap_around():
    sums = Int32Sum(1024, 3e-6, PARAMETERS)
    assert sums.units * sums.largest_cohort < 2**31 <= (sums.units + 1) * sums.largest_cohort
    users = np.array([2**30, 2**30, 2**30, -(2**30), -(2**30), 7], dtype=np.int32)  # 3 * 2^30 on the way
    total = np.zeros(1, dtype=np.int32)
    for user in users:
        total += user
    assert total == users.sum(dtype=np.int64) == 2**30 + 7


def test_rounding_toward_zero_stays_within_the_derived_errors():
    """Users with independent signs: the average is off by the standard error, and never by more than the bias."""
    sums, sigma_dp = Int32Sum(256, 3e-6, 20_000), 3e-6
    rng = np.random.default_rng(0)
    deltas = rng.standard_normal((256, sums.parameters)) / np.sqrt(sums.parameters)
    errors = (np.trunc(deltas * sums.units) / sums.units - deltas).mean(0) / sigma_dp
    assert np.abs(errors).max() <= sums.bias_over_noise
    assert errors.std() == pytest.approx(sums.error_over_noise, rel=0.05)


def test_bytes_and_times_of_a_reduction():
    leader, ring, nodes = (way(PARAMETERS, 1024) for way in (reduce_to_leader, scattered, by_node_first))
    assert leader.bytes_sent == 12 * PARAMETERS
    assert ring.bytes_sent == pytest.approx(12 * PARAMETERS, rel=1e-3)
    assert nodes.seconds < ring.seconds / 3  # eight ports of a machine instead of one
    assert by_node_first(PARAMETERS, 8).bytes_sent == 12 * PARAMETERS * 7 / 8
    assert reduce_to_leader(PARAMETERS, 1).seconds == 0


def step(workers, rule, seconds_by_user, processes):
    users = tuple(
        UserTime(name=name, process=process, cost_seconds=10 * seconds, seconds=seconds)
        for (name, seconds), process in zip(seconds_by_user.items(), processes, strict=True)
    )
    waited = (0.5,) * workers
    busy = [0.5 + sum(user.seconds for user in users if user.process == worker) for worker in range(workers)]
    phases = {"cohort": 0.1, "users": max(busy), "server": 0.2}
    return MeasuredStep(
        cohort=len(users), t=1, rule=rule, workers=workers, users=users, waited=waited, phases=phases,
        seconds=sum(phases.values()),
    )  # fmt: skip


TIMES = {"a": 1.0, "b": 4.0, "c": 2.0}


def test_a_step_whose_users_take_as_long_on_two_workers_is_predicted_exactly():
    steps = [
        step(1, ENGINE, TIMES, [0, 0, 0]),
        step(2, ENGINE, TIMES, [1, 0, 1]),  # longest first: b, then c and a on the other
        step(2, DEALT, TIMES, [0, 0, 1]),
    ]
    for prediction in (*from_user_times(steps), *from_law(steps)):
        assert prediction.users_error == pytest.approx(0, abs=1e-6)
        assert prediction.step_error == pytest.approx(0, abs=1e-6)
    assert [prediction.users_seconds for prediction in from_user_times(steps)] == [4.5, 5.5]
    assert user_law(steps).spread == pytest.approx(0, abs=1e-6)
    simulated, recorded = shares_of(steps[1], steps[0]), recorded_shares(steps[1], steps[0])
    assert [sorted(share) for share in simulated] == [sorted(share) for share in recorded]


def test_users_of_a_real_step_add_up_to_its_phase(tmp_path):
    store = write_users(tmp_path / "store", [[1.0], [2.0, 1.0], [0.5]])
    people = ("participation.population=3", "participation.cohort_size=3", "participation.sampling=everyone")
    setting = Setting(store, "quick", (*people, "federated.local.epochs=1", "federated.local.steps=null"))
    watched_steps(Group(), setting, ENGINE, 1, tmp_path / "steps.json")
    (document,) = map(MeasuredStep.model_validate, json.loads((tmp_path / "steps.json").read_text()))
    assert [user.name for user in document.users] == ["speaker-000000000", "speaker-000000001", "speaker-000000002"]
    assert document.busy[0] == pytest.approx(document.phases["users"], rel=0.02)
    assert document.idle == 0


def point(x, seconds, cpu):
    return Point(
        x=x, seconds=(seconds,), cpu_by_process=cpu, phases=dict.fromkeys(("users", "release", "sum", "server"), 1.0)
    )


def measurements(*, second_process, added_wall):
    """Noise of 1 s of CPU time per million coordinates; with two workers, a share of it on the second."""
    plain, noisy = point(1e6, 5.0, (5.0,)), point(1e6, 5.0 + added_wall, (6.0,))
    both = [point(2, 5.0, (5.0, 5.0)), point(2, 6.0, (6.0 - second_process, 5.0 + second_process))]
    laws = {
        "hash": (Point(x=1e6, seconds=(0.01,)),),
        "secure noise": (Point(x=1e6, seconds=(1.0,)), Point(x=1e8, seconds=(100.0,))),
    }
    series = {
        "model": {"without noise": (plain,)},
        "noise": {"without noise": (plain, both[0]), "secure noise": (noisy, both[1])},
        "exchange": laws,
        "workers": {},
    }
    steps = (step(1, ENGINE, TIMES, [0, 0, 0]),)
    parts = {
        name: Part(code="", quick=True, took_seconds=1, series=own, steps=steps if name == "workers" else ())
        for name, own in series.items()
    }
    return Measurements(machine={"processor": "", "cores": 2, "gigabytes": 1.0}, parts=parts)


def test_who_draws_the_noise_and_when_is_read_off_the_measurements():
    leader = Rates.of(measurements(second_process=0.0, added_wall=1.0))
    assert (leader.noise_shared, leader.noise_hidden) == (False, False)
    assert leader.noise.per_unit == pytest.approx(1e-6)
    together = Rates.of(measurements(second_process=0.5, added_wall=0.1))
    assert (together.noise_shared, together.noise_hidden) == (True, True)
    before, after = (as_it_is(rates, 64, 1024) for rates in (leader, together))
    assert before.seconds["noise"] == pytest.approx(PARAMETERS * 1e-6)
    assert after.seconds["noise"] == 0.0  # 4 s on each of 64 processes, while users train for 20 s
    assert sharded(leader, 64, 1024).seconds["noise"] == pytest.approx(PARAMETERS * 1e-6 / 64)
    assert sum(before.share(part) for part in before.seconds) == pytest.approx(1)
    assert before.gpu_hours == pytest.approx(64 * 2000 * before.step_seconds / 3600)


def test_numbers_read_well():
    times = {142.2: "142 s", 3.41: "3.4 s", 0.0214: "21.4 ms", 5.6e-5: "56 µs", 0.0: "0 ns"}
    assert [duration(value) for value in times] == list(times.values())
    assert [digits(value) for value in (12345.6, 99.94, 3.41, 0.0714)] == ["12,346", "99.9", "3.4", "0.071"]
    assert [percent(value) for value in (0.0, 0.0312, 0.1249)] == ["0 %", "3.1 %", "12 %"]
    assert (line(0.0, 0.5, "user"), line(1.0, 0.5, "user")) == ("500 ms per user", "1 s + 500 ms per user")
    assert line(1.0, 0.0, "user") == "1 s, no growth"


def test_paragraphs_and_lists_are_wrapped_and_tables_are_not():
    table = "| a | b |\n| - | - |"
    lines = wrapped(f"# A heading\n\n{'word ' * 60}\n\n- one\n- two\n  more\n\n{table}").splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0] == "# A heading"
    assert lines[-5:] == ["- one", "- two more", "", *table.splitlines()]


def test_the_measured_steps_had_the_simulated_shares():
    steps = Measurements.read(MEASURED).parts["workers"].steps
    alone = {(each.cohort, each.t): each for each in steps if each.workers == 1}
    shared = [each for each in steps if each.workers == 2 and each.rule == ENGINE]
    assert shared
    for each in shared:
        simulated, recorded = (shares(each, alone[each.cohort, each.t]) for shares in (shares_of, recorded_shares))
        assert [sorted(share) for share in simulated] == [sorted(share) for share in recorded]


@pytest.mark.slow
def test_the_page_shows_the_measurements(tmp_path):
    write_page(Measurements.read(MEASURED), tmp_path / "scaling.md")
    assert (tmp_path / "scaling.md").read_text() == MEASURED.with_name("scaling.md").read_text()
