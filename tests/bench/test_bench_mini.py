"""The benchmarks in miniature: every row resolves, stands for a row of the paper, and is in the list of runs."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sottovoce.bench.plan import configure, with_models
from sottovoce.bench.preset import Part, RowClaim, Size, bench_names, load_bench
from sottovoce.bench.results import claimed
from sottovoce.config import parse_tree
from sottovoce.data.corpora import Synthetic

PRESETS = Path(__file__).parents[2] / "src" / "sottovoce" / "bench" / "presets"
LIST = Path(__file__).parents[2] / "docs" / "benchmark.md"
HELD_OUT = {"dev": 40, "test": 160}
CROWD_HELD_OUT = {"dev": 100, "test": 3000}
OTHERS_HELD_OUT = {"real-speech": {"dev": 6, "test": 14}, "real-epsilon": CROWD_HELD_OUT, "less-noise": CROWD_HELD_OUT}
REAL_SPEAKERS = {"an4": 84, "digits": 60}
each_bench = pytest.mark.parametrize("name", bench_names())


def mini(name: str) -> Size:
    return load_bench(name).size("mini")


@cache
def sizes_of(name: str) -> dict[str, Any]:
    """Return the sizes of a benchmark as they are written."""
    return parse_tree((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"), name)["sizes"]


def speakers_in(size: Size, part: Part) -> int:
    """Return how many speakers a slice has, in a corpus of two domains or in a real one."""
    corpus = size.corpora[part.corpus]
    if not isinstance(corpus, Synthetic):
        total = REAL_SPEAKERS[part.corpus]
    else:
        total = corpus.speakers // len(corpus.domains) if "domain" in part.where else corpus.speakers
    first, _, last = part.speakers.partition(":")
    return int(last or total) - int(first or 0)


@each_bench
def test_every_row_resolves_and_knows_how_many_users_there_are(name):
    size = mini(name)
    for row in with_models(size, size.rows):
        parts = {role: size.parts[part] for role, part in size.part_of(row).items() if part is not None}
        held_out = {role: speakers_in(size, parts[role]) for role in HELD_OUT}
        assert held_out == OTHERS_HELD_OUT.get(name, HELD_OUT), row.name
        if row.same is None:
            config = configure(size, row).config
            if row.kind == "federated":
                assert config.participation.population == speakers_in(size, parts["train"]), row.name


@each_bench
def test_every_row_stands_for_one_of_the_paper_or_says_why_not(name):
    bench = load_bench(name)
    for row in bench.size("mini").rows:
        assert row.note if row.like is None else bench.paper_row(row).line, row.name


@each_bench
def test_effects_and_figures_are_about_rows_that_exist(name):
    for size, tree in sizes_of(name).items():
        rows = {row.name for row in load_bench(name).size(size).rows}
        effects, figures = tree.get("effects", []), tree.get("figures", [])
        assert len({effect["name"] for effect in effects}) == len(effects)
        for effect in effects:
            assert set(effect["contrast"]) <= rows, effect["name"]
            of_norms = len(effect["contrast"]) == 1
            assert sum(effect["norms" if of_norms else "contrast"].values()) == pytest.approx(0), effect["name"]
        for figure in figures:
            for line in figure["lines"].values():
                assert set(line) <= rows, figure["title"]


@pytest.mark.parametrize("name", ["real-epsilon", "less-noise"])
def test_private_rows_spend_no_more_than_the_epsilon_they_are_named_after(name):
    size = mini(name)
    for row in size.rows:
        config = configure(size, row).config
        if row.kind != "federated" or config.privacy.sigma_dp == 0:
            continue
        users = config.participation
        own = RowClaim(row=row.name, cohort_size=users.cohort_size, population=users.population)
        named = re.search(r"epsilon (\d+)", f"{row.name} {row.note}")
        assert claimed(config, own).epsilon.tightest <= float(named[1] if named else 8), row.name
        assert config.randomness.source == "secure", row.name
        assert config.privacy.target_delta < users.population**-1.1, row.name


def test_every_benchmark_has_effects():
    assert [name for name in bench_names() if not sizes_of(name)["mini"].get("effects")] == []


def test_the_list_of_runs_is_true():
    listed = re.findall(
        r"^\| `([a-z0-9-]+)` \| .* \| (\d+) \+ (\d+) \|$", LIST.read_text(encoding="utf-8"), re.MULTILINE
    )
    counted = {}
    for name in bench_names():
        kinds = [row.kind for row in with_models(mini(name), mini(name).rows) if row.same is None]
        counted[name] = (kinds.count("federated"), kinds.count("central"))
    assert {name: (int(federated), int(central)) for name, federated, central in listed} == counted
