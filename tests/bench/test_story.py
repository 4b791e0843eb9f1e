"""The demo's story follows from its numbers, whether or not they are those of the paper."""

from sottovoce.bench.demo_story import story
from sottovoce.bench.preset import Row
from sottovoce.bench.results import RowResult, Spread
from sottovoce.config import resolve
from sottovoce.privacy.epsilons import Epsilons


def shown(**wer: tuple[float, ...]) -> list[RowResult]:
    config = resolve("quick").config
    return [
        RowResult(
            row=Row(name=name.rstrip("_")),
            config=config,
            kind="federated",
            wer={"test": Spread(values), "clean/test": Spread((0.1,))},
            epsilon=Epsilons(),
            claims=[],
            paper={},
            note="",
            folders=[],
        )
        for name, values in wer.items()
    ]


def test_all_effects_of_the_paper():
    told = story(shown(seed=(0.6,), central=(0.2,), federated=(0.25,), global_=(0.4,), dim=(0.3,)), "clean/test")
    assert told == [
        "Domain shift: the seed model has 10.0 % WER on speech like its own and 60.0 % on the users'.",
        "Federated learning without noise recovers most of the gap to central training: 88 % "
        "(60.0 to 25.0; central 20.0).",
        "With this seed clipping and noise cost 15.0 points with global clipping and 5.0 with dim: the order of the "
        "paper (one seed proves little: --seeds 3 shows the spread).",
    ]
    told = story(shown(federated=(0.25, 0.3), global_=(0.4, 0.5), dim=(0.3, 0.35)), "clean/test")
    assert told[-1].startswith("As in the paper, clipping and noise cost 17.5 points")
    told = story(shown(federated=(0.2,), global_=(0.3,), dim=(0.4,)), "clean/test")
    assert "with dim: not the order of the paper (one seed" in told[-1]


def test_what_does_not_appear_is_said():
    told = story(
        shown(seed=(0.14,), central=(0.1,), federated=(0.125,), global_=(0.13, 0.14), dim=(0.14, 0.13)), "clean/test"
    )
    assert told[0].startswith("No domain shift is visible")
    assert "only a part of the gap" in told[1]
    assert told[2].startswith("No clear difference between the clippings, unlike in the paper")
    assert told[2].endswith("(dim is better with 1 of 2 seeds).")


def test_rows_that_did_not_run_are_not_spoken_of():
    assert story(shown(seed=(0.6,)), "clean/test") == [
        "Domain shift: the seed model has 10.0 % WER on speech like its own and 60.0 % on the users'."
    ]
    assert story([], "clean/test") == []


def test_small_differences_are_not_effects():
    told = story(shown(seed=(0.31,), central=(0.3,), federated=(0.2,), global_=(0.301,), dim=(0.3,)), "clean/test")
    assert "too little to recover" in told[1]
    assert told[2].startswith("No clear difference")
    told = story(shown(federated=(0.5,), global_=(0.4,), dim=(0.3,)), "clean/test")
    assert told == [
        "The cost of noise is smaller than other differences between the runs: clipping and noise cost -10.0 points "
        "with global clipping and -20.0 with dim."
    ]
    told = story(shown(federated=(0.2,), global_=(0.3, 0.3), dim=(0.4, 0.35)), "clean/test")
    assert told[0].startswith("Unlike in the paper")
