"""Effects of the paper: its own numbers show them, and verdicts follow from intervals alone."""

import pytest
from pydantic import ValidationError

from bench_counts import results, run_result
from sottovoce.bench.effects import Effect, Series
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import bench_names, load_bench
from sottovoce.bench.result_tables import effect_table, footnotes, interval_note, section
from sottovoce.bench.results import row_result
from sottovoce.bench.summary import counts_line, summarise, summary_document, summary_section, summary_table
from sottovoce.bench.verdicts import EffectResult, effect_results, reproduced
from sottovoce.evaluation.intervals import MeanOverSeeds
from sottovoce.reports.sections.effect_figures import effects_section

EFFECT = Effect(name="more noise is worse", contrast={"a": 1, "b": -1})
WERS = {
    "seed": (0.6,) * 3,
    "central": (0.3,) * 3,
    **{f"from seed S={size}": (wer,) * 3 for size, wer in ((4, 0.45), (8, 0.425), (16, 0.4), (32, 0.375))},
    "no seed S=8": (0.9,) * 3,
    "no seed S=16": (0.85, 0.9, 0.875),
}


@pytest.mark.parametrize("name", bench_names())
def test_the_papers_own_numbers_show_its_effects(name):
    bench = load_bench(name)
    for size in bench.sizes.values():
        for effect in (effect for effect in size.effects if effect.paper):
            printed = {row: bench.paper_values(size.row(row)) for row in effect.contrast}
            for label in {effect.on, "dev", "test"}:
                value = effect.of({row: values[label] for row, values in printed.items() if label in values})
                assert value is None or effect.holds(value), (effect.name, label, value)


def verdict(low, high, seeds=3, **options):
    middle, half = (low + high) / 2, (high - low) / 2
    effect = EFFECT.model_copy(update=options)
    return EffectResult(effect, MeanOverSeeds(dict.fromkeys(range(seeds), middle), half), {}, None)


def test_a_verdict_needs_the_whole_interval_and_two_seeds():
    assert verdict(0.1, 4).words == "agrees"
    assert verdict(-4, -0.1).words == "disagrees"
    assert verdict(-0.1, 4).words == "cannot tell at this size"
    assert verdict(0.1, 4, seeds=1).words == "one seed: agrees over speakers alone"
    assert verdict(0.1, 4, seeds=1).verdict == "one seed"
    assert verdict(-0.1, 4, seeds=1).words == "one seed: cannot tell over speakers alone"
    assert EffectResult(EFFECT, None, {}, 1.0).words == "not run"
    assert EffectResult(EFFECT, MeanOverSeeds({0: 1.0, 1: 1.0}, None), {}, None).verdict == "cannot tell"


def test_no_difference_is_an_interval_inside_the_margin():
    assert verdict(-1.9, 1.5, within=2.0).words == "agrees"
    assert verdict(2.1, 5, within=2.0).words == "disagrees"
    assert verdict(-5, -2.1, within=2.0).words == "disagrees"
    assert verdict(1, 3, within=2.0).words == "cannot tell at this size"


def test_no_gain_is_an_interval_above_the_least_value():
    assert verdict(-1.9, 9, least=-2.0).words == "agrees"
    assert verdict(-5, -2.1, least=-2.0).words == "disagrees"
    assert verdict(-3, 1, least=-2.0).words == "cannot tell at this size"
    no_gain = Effect(name="x", contrast={"a": 1, "b": -1}, least=-2)
    assert (no_gain.holds(-1), no_gain.holds(-3)) == (True, False)
    with pytest.raises(ValidationError, match="both `within` and `least`"):
        Effect(name="x", contrast={"a": 1, "b": -1}, least=-2, within=1)


def test_a_benchmark_is_reproduced_by_a_stated_rule():
    agrees, disagrees, unclear, one = verdict(1, 2), verdict(-2, -1), verdict(-1, 1), verdict(1, 2, seeds=1)
    missing = EffectResult(EFFECT, None, {}, None)
    for other in (agrees, disagrees, unclear, missing):  # the first effect is the main one
        assert reproduced([agrees, other]) == "yes"
        assert reproduced([disagrees, other]) == "no"
        assert reproduced([unclear, other]) == reproduced([one, other]) == "cannot tell"
        assert reproduced([missing, other]) == "not run"
    assert reproduced([]) == "no effects stated"


def test_contrasts_of_printed_numbers():
    assert Effect(name="x", contrast={"a": 0.5, "b": -1, "c": 0.5}).of({"a": 60, "b": 25, "c": 20}) == 15
    ratio = Effect(name="x", contrast={"a": 1, "b": -1}, scale="relative")
    assert ratio.of({"a": 30, "b": 24}) == pytest.approx(25.0)
    assert ratio.of({"a": 30}) is None
    assert ratio.of({"a": 30, "b": 0}) is None


def test_effects_of_rows_that_were_not_asked_for_are_not_run():
    _, size, shown = cohort_sizes()
    some = [result for result in shown if result.row.name in ("from seed S=4", "from seed S=32")]
    found = effect_results(size.effects, some)
    assert [effect.verdict for effect in found] == ["agrees", "not run", "not run", "not run"]
    assert reproduced(found) == "yes"


def cohort_sizes(wers=WERS):
    bench = load_bench("cohort-size")
    size = bench.size("mini")
    effects = (
        Effect(name="larger cohorts help", contrast={"from seed S=4": 1, "from seed S=32": -1}),
        Effect(name="a ratio", contrast={"no seed S=16": 1, "from seed S=16": -1}, scale="relative"),
        Effect(name="near", contrast={"from seed S=32": 1, "central": -1}, within=2.0, paper=False),
        Effect(name="no gain", contrast={"central": 1, "from seed S=32": -1}, least=-5.0, paper=False),
    )
    lines = {"from a seed": {f"from seed S={number}": number for number in (4, 8, 16, 32)}}
    figures = (
        Series(title="WER over S", x="S", lines=lines, log=True),
        Series(title="WER by kind", x="kind", lines={"all": {"seed": "seed model", "central": "central"}}),
    )
    size = size.model_copy(update={"effects": effects, "figures": figures})
    return bench.model_copy(update={"sizes": {**bench.sizes, "mini": size}}), size, results(bench, size, wers)


def test_tables_show_ours_the_papers_and_the_verdict(tmp_path):
    bench, size, shown = cohort_sizes()
    lines = effect_table(effect_results(size.effects, shown))
    assert lines[0] == ["larger cohorts help", "+7.5 ± 0.0 points", "test", "+6.8 points", "agrees"]
    assert lines[1][1].startswith("+119 % (")
    assert lines[1][3:] == ["+93 %", "agrees"]
    assert lines[2][3:] == ["+4.2 points; within 2 points", "disagrees"]
    assert lines[3][3:] == ["-4.2 points; at least -5 points", "disagrees"]
    run = BenchRun(name="x", bench=bench, size_name="mini", rows=size.rows, seeds=range(3), out=tmp_path)
    text = section(run, shown, "sotto bench run x")
    assert "| larger cohorts help | +7.5 ± 0.0 points | test | +6.8 points | agrees |" in text
    assert "the mean over 3 seeds" in text
    one = results(bench, size, {row: wers[:1] for row, wers in WERS.items()})
    assert "One seed: other seeds may differ by more" in interval_note(one)
    assert not interval_note(results(bench, size, {}))
    three = {"seed": (0.6,) * 3, "from seed S=4": (0.4,), "from seed S=8": (0.4,) * 2, "central": (0.3,)}
    said = "the mean over 3 seeds (1 for from seed S=4, central; 2 for from seed S=8) ±"
    assert said in interval_note(results(bench, size, three))


def test_a_best_model_that_is_clearly_another_has_a_footnote():
    bench = load_bench("cohort-size")
    size = bench.size("mini")
    wers = {"dev": 0.4, "test": 0.4}
    for best, said in (({"dev": 0.375, "test": 0.4}, True), ({"dev": 0.4, "test": 0.4}, False)):
        result = row_result(bench, size, size.rows[1], [run_result(0, wers, best=best)])
        noted = any("of the best model on dev instead of the last one: 37.5" in line for line in footnotes([result]))
        assert noted == said


def test_the_page_draws_rows_effects_and_series():
    _, size, shown = cohort_sizes()
    found = effects_section(size, shown)
    assert [picture.name for picture in found.pictures] == ["wer-by-row", "effects", "series-1", "series-2"]
    html = found.render()
    assert "larger cohorts help" in html
    assert "disagrees" in html
    rows, effects = found.tables
    assert len(rows.rows) == 2 * len(WERS)
    assert [row[-1] for row in effects.rows] == ["agrees", "agrees", "disagrees", "disagrees"]
    nothing = effects_section(size, results(load_bench("cohort-size"), size, {}))
    assert not nothing.pictures
    assert "No row has run yet." in nothing.render()


def test_a_summary_of_what_has_not_run(tmp_path):
    found = summarise(lambda name: BenchRun.choose(name, seeds=3, out=tmp_path), "mini")
    assert [one.name for one in found] == bench_names()
    assert {one.reproduced for one in found} <= {"not run", "no effects stated"}
    line = counts_line(found)
    assert line == (
        "22 benchmarks of the paper's results. Reproduced in miniature: not run: 22. "
        "Beyond the paper, 4 benchmarks: not run: 4."
    )
    assert len(summary_table(found)) >= 23
    paper = summarise(lambda name: BenchRun.choose(name, size="paper", out=tmp_path), "paper")
    assert " Reproduced at the paper's size: not run: " in counts_line(paper)
    assert summary_document(found)["benchmarks"]["demo"]["reproduced"] == "not run"
    assert "| not run | - |" in summary_section(found, "sotto bench summary")
