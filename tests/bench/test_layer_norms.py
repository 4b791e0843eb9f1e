"""Norms of layers as effects: what is read from runs, and what the verdict says."""

import json

import pytest

from bench_counts import run_result
from sottovoce.bench.effects import Effect
from sottovoce.bench.layer_norms import layer_norms, norm_of
from sottovoce.bench.preset import load_bench
from sottovoce.bench.result_tables import effect_cells, effect_document
from sottovoce.bench.results import row_result
from sottovoce.bench.verdicts import effect_results
from sottovoce.evaluation.intervals import over_seeds_alone
from sottovoce.runs.folder import Run

DOMINATE = Effect(name="they dominate", contrast={"from the seed": 1}, norms={"ln1": 1, "wf": -1}, scale="times")


def written(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder)


def test_gradients_are_averaged_over_steps_then_tensors_and_blocks(tmp_path):
    def step(number, scale):
        norms = {"blocks.0.ln1.weight": 3, "blocks.0.ln1.bias": 4, "blocks.1.ln1.weight": 1, "output.weight": 9}
        return {"step": number, "layer_gradient_norms": {name: scale * norm for name, norm in norms.items()}}

    norms = layer_norms(written(tmp_path, [step(1, 1), {"step": 2}, step(3, 3)]))
    assert norms == {"ln1": (pytest.approx(2 * 12.5**0.5), 2.0)}
    assert norm_of(norms, "ln1") == pytest.approx((4 * (12.5 + 1) / 2) ** 0.5)
    assert norm_of(norms, "ln1 first") == norms["ln1"][0]
    assert norm_of(norms, "ln1 last") == 2.0
    assert norm_of(norms, "ln1 middle") is None
    assert norm_of(norms, "w1") is None


def test_deltas_are_averaged_over_users(tmp_path):
    def step(number, users, failed, norm):
        layers = {"delta_norm": {"blocks.0.wf.weight": norm}}
        return {"step": number, "not_private": {"cohort": users, "failed_users": failed, "layers": layers}}

    empty = {"step": 3, "not_private": {"cohort": 0}}
    assert layer_norms(written(tmp_path, [step(1, 4, 1, 1.0), step(2, 1, 0, 5.0), empty])) == {"wf": (2.0,)}
    assert layer_norms(written(tmp_path, [empty])) == {}


def found(*ratios, effect=DOMINATE):
    bench = load_bench("central-gradients")
    size = bench.size("mini")
    runs = [run_result(seed, {}, norms={"ln1": (ratio,), "wf": (1.0,)}) for seed, ratio in enumerate(ratios)]
    return effect_results([effect], [row_result(bench, size, size.row(name), runs) for name in effect.contrast])[0]


def test_a_ratio_of_norms_is_decided_over_seeds():
    agrees = found(6.0, 7.0, 8.0)
    assert agrees.words == "agrees"
    assert effect_cells(agrees) == ["6.95 times (4.86 to 9.94)", "norms", "-", "agrees"]
    assert effect_document(agrees)["ours"]["over"] == "seeds"
    assert found(0.2, 0.25, 0.3).words == "disagrees"
    assert found(0.9, 1.5).words == "cannot tell at this size"
    assert (found(6.0).words, found(6.0).verdict) == ("one seed: cannot tell", "one seed")
    assert found().words == "not run"
    least = DOMINATE.model_copy(update={"least": 10})
    assert found(6.0, 7.0, 8.0, effect=least).words == "disagrees"


def test_students_interval_of_three_logarithms():
    from scipy.stats import t

    ours = over_seeds_alone({0: 0.0, 1: 1.0, 2: 2.0})
    assert ours.half == pytest.approx(t.ppf(0.975, 2) / 3**0.5)
    assert over_seeds_alone({}) is None


@pytest.mark.parametrize("options", [{"scale": "points"}, {"norms": {}}, {"within": 2}])
def test_norms_are_compared_as_ratios(options):
    with pytest.raises(ValueError, match="scale: times"):
        Effect.model_validate(DOMINATE.model_dump() | options)
