"""The demo's story follows from its intervals, whether or not they are those of the paper."""

from bench_counts import results
from sottovoce.bench.demo_story import DEMO, story
from sottovoce.bench.effects import Effect
from sottovoce.bench.preset import load_bench

EFFECTS = [
    Effect(name="federated learning recovers most", contrast={"seed": 0.5, "federated": -1, "central": 0.5}),
    Effect(name="dim is better", contrast={"global": 1, "dim": -1}),
]
PAPERS = {"seed": (0.6,) * 3, "central": (0.2,) * 3, "federated": (0.25,) * 3, "global": (0.4,) * 3, "dim": (0.3,) * 3}


def told(wers):
    bench = load_bench(DEMO)
    return story(results(bench, bench.size("mini"), wers, **{"clean/test": 0.1}), EFFECTS)


def test_all_effects_of_the_paper():
    shift, recovery, clipping = told(PAPERS)
    assert shift.startswith("A seed model is poor on speech from another domain (agrees): 60.0 ± ")
    assert "+50.0 ± " in shift
    assert recovery.startswith("Federated learning recovers most (agrees): ours +15.0 ± ")
    assert recovery.endswith("points, the paper's +20.6 points.")
    assert clipping.startswith("Dim is better (agrees): ours +10.0 ± ")


def test_one_seed_says_so():
    *_, clipping = told({row: wers[:1] for row, wers in PAPERS.items()})
    assert clipping.startswith("Dim is better (one seed: agrees over speakers alone): ours +10.0 ± ")


def test_what_does_not_appear_is_said():
    assert "(disagrees)" in told({**PAPERS, "dim": (0.5,) * 3})[-1]
    assert "(cannot tell at this size)" in told({**PAPERS, "dim": (0.35, 0.4, 0.45)})[-1]
    assert "(cannot tell at this size)" in told({**PAPERS, "seed": (0.1,) * 3})[0]


def test_rows_that_did_not_run_are_not_spoken_of():
    assert [sentence[:11] for sentence in told({"seed": (0.6,)})] == ["A seed mode"]
    assert told({}) == []
