"""The benchmarks of the paper's size: every row resolves, and every number is the one that the paper prints.

The order of rows is the order of the tables, so that whole lines are compared, from left to right. What needs the
paper's source is skipped where it is absent.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from paper_tables import SOURCE, TABLES, Source, Table, cells, numbers
from sottovoce.bench.plan import configure
from sottovoce.bench.preset import Row, Size, bench_names, load_bench
from sottovoce.config import Config, parse_setting
from sottovoce.errors import ConfigError
from sottovoce.privacy.paper import paper_rows

NAMES = [name for name in bench_names() if "paper" in load_bench(name).sizes]
needs_paper = pytest.mark.skipif(not SOURCE.is_file(), reason=f"needs the paper's source, {SOURCE}")
each_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.name}-{table.tabular}")


@cache
def source() -> Source:
    return Source()


def size_of(bench: str) -> Size:
    return load_bench(bench).size("paper")


@cache
def config_of(bench: str, name: str) -> Config:
    return configure(size_of(bench), size_of(bench).row(name)).config


def all_rows() -> Iterator[tuple[str, Row]]:
    for name in NAMES:
        yield from ((name, row) for row in size_of(name).rows)


def test_every_result_is_there():
    tables = {table.bench for table in TABLES}
    figures = {"noise-per-group", "delta-norms", "train-dynamics", "central-gradients"}
    assert tables | figures | {"clip-bound", "convergence-bound"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_resolves(name):
    size = size_of(name)
    bench = load_bench(name)
    assert bench.about
    assert bench.finding
    for row in (*size.rows, *size.models.values()):
        resolved = configure(size, row)
        assert size.unstated_in(row) <= {key for key, _, _ in resolved.rows()}, row.name
        assert row.line or row.name in size.models
    for row in size.rows:
        parts = size.part_of(row)
        assert parts["dev"] in size.parts
        assert parts["test"] in size.parts
        assert row.same or parts["train"] in size.parts
        assert set(row.paper) <= {"dev", "test", "dev-clean", "test-clean", "dev-other", "test-other"}
    assert all(model.name == key and model.kind == "central" for key, model in size.models.items())


def test_claims_are_those_of_the_table():
    tables = {row.table for row in paper_rows()}
    claimed = {name: size_of(name).paper_claims for name in NAMES if size_of(name).paper_claims}
    assert set(claimed.values()) <= tables
    assert claimed == {name: name.replace("dp-", "dp-results-") for name in ("dp-fr-de", "dp-ls960")} | {
        "dp-results": "dp-results-extended"
    }


# How the paper's runs were made: local and central rate, begin, rate and steps of the decay, local epochs and steps,
# seconds in a batch, S, K, T.
RUNS = [
    ("cohort-size", "LS-960 S=8", (0.4, 0.006, 1000, 0.6, 500, 10, None, 360, 8, 2338, 2000)),
    ("cohort-size", "LS-100 to LS-860 S=64", (0.2, 0.003, 1000, 0.6, 250, 10, None, 360, 64, 2087, 2000)),
    ("cohort-size", "CV-en S=256", (0.4, 0.006, 1000, 0.6, 500, 10, None, 120, 256, 34753, 2000)),
    ("cohort-size", "CV-en-05 to CV-en-95 S=8", (0.2, 0.002, 750, 0.6, 750, 10, None, 120, 8, 33016, 2000)),
    ("languages", "CV-de S=128", (0.4, 0.006, 1000, 0.6, 500, 10, None, 120, 128, 7127, 2000)),
    ("longer-training", "LS-100 to CV-en S=64 T=4k", (0.2, 0.002, 750, 0.6, 750, 10, None, 120, 64, 34753, 4000)),
    ("seed-quality", "from 30 steps", (0.4, 0.006, 1000, 0.6, 500, 10, None, 120, 32, 34753, 2000)),
    (
        "steps-vs-epochs",
        "LS-960 to CV-en S=5120 10 steps",
        (0.2, 0.002, 750, 0.6, 750, None, 10, 120, 5120, 34753, 2000),
    ),
    ("dp-results", "uniform 3e-6", (0.2, 0.002, 750, 0.6, 750, None, 10, 120, 1024, 34753, 2000)),
    ("dp-fr-de", "fr dim 3e-6", (0.2, 0.002, 750, 0.6, 750, None, 10, 120, 1024, 6171, 2000)),
]


@pytest.mark.parametrize(("bench", "name", "expected"), RUNS)
def test_how_a_run_was_made(bench, name, expected):
    config = config_of(bench, name)
    local, schedule = config.federated.local, config.federated.schedule
    found = (local.lr, schedule.lr, schedule.begin, schedule.rate, schedule.every, local.epochs, local.steps)
    sizes = (config.batching.seconds, config.participation.cohort_size, config.participation.population)
    assert (*found, *sizes, config.federated.central_steps) == expected
    assert (schedule.decay, config.federated.optimizer.name, local.gradient_clip) == ("exponential", "lamb", 1.0)
    model = config.model
    assert (model.blocks, model.width, model.dropout, model.layer_drop, model.norm) == (36, 768, 0.3, 0.3, "pre")


def test_privacy_of_a_run():
    privacy = config_of("dp-results", "uniform 3e-6").privacy
    assert (privacy.clip_norm, privacy.sigma_dp, privacy.clipping, privacy.rule) == (0.01, 3e-6, "uniform", "clip")
    assert config_of("clip-bound", "global C=1e-8").privacy.clip_norm == 1e-8
    for name in ("uniform C=0.01 3e-6", "uniform C=0.005 6e-6", "uniform C=0.02 1.5e-6"):
        same = config_of("clip-bound", name).privacy
        assert same.clip_norm * same.sigma_dp == pytest.approx(3e-8)
    for name in ("uniform 3e-6", "dim 3e-6", "uniform 10e-6", "dim 10e-6"):
        clipped, normalized = (config_of("dp-results", row).privacy for row in (name, f"{name} normalize"))
        assert normalized == clipped.model_copy(update={"rule": "normalize"})
    halved = config_of("noise-per-group", "dim halved on mlp").privacy.noise_analysis
    assert (halved.group, halved.inside, halved.outside) == ("mlp", 0.5, 1.0)
    only = config_of("noise-per-group", "global only wqkv").privacy.noise_analysis
    assert (only.group, only.inside, only.outside) == ("wqkv", 1.0, 0.0)


def test_cohorts_of_one_user_are_never_empty():
    for name in ("FL pre-LayerNorm", "FL post-LayerNorm", "FL post-LayerNorm without warmup"):
        participation = config_of("architectures", name).participation
        assert (participation.cohort_size, participation.sampling) == (1, "fixed")
        assert "participation.sampling" in size_of("architectures").unstated_in(size_of("architectures").row(name))


def test_central_models():
    for name, lr in (("LS-960 to CV-en central", 0.5), ("CV-en-10 to CV-en-90 central", 0.2)):
        central = config_of("cohort-size", name).central
        assert (central.optimizer.name, central.schedule.lr, central.schedule.decay) == ("lars", lr, "step")
        assert (central.schedule.rate, central.schedule.every, central.schedule.warmup) == (0.5, 50_000, 0)
        assert (central.micro_batches, central.micro_batch_seconds, central.gradient_clip) == (8, 240, 1)
        assert 40_000 <= central.schedule.begin <= 330_000
        assert 300_000 <= central.steps <= 600_000
        assert {"central.steps", "central.schedule.begin"} <= set(size_of("cohort-size").row(name).unstated)
    assert config_of("steps-vs-epochs", "LS-100 to CV-en central 3x batch").central.micro_batches == 24
    assert [config_of("seed-quality", f"LS-100 after {n}").central.steps for n in (30, 50, 70)] == [30, 50, 70]
    for row in size_of("central-gradients").rows:
        assert row.kind == "central"
        assert config_of("central-gradients", row.name).central.layer_norms_every is not None


@pytest.mark.parametrize(
    ("word", "shape"),
    [
        ("narrow", (36, 512, 2048)),
        ("baseline", (36, 768, 3072)),
        ("wide", (36, 1024, 4096)),
        ("shallow", (16, 768, 3072)),
        ("deep", (72, 768, 3072)),
    ],
)
def test_models_of_other_sizes(word, shape):
    size = size_of("model-size")
    rows = [row for row in size.rows if row.name.startswith(word)]
    assert {row.seed_model for row in rows} == {f"LS-100 {word}"}
    for row in (*rows, size.models[f"LS-100 {word}"]):
        model = config_of("model-size", row.name).model
        assert (model.blocks, model.width, model.mlp_width) == shape
        assert (model.layer_drop, model.dropout) == (0.1, 0.3)


def test_numbers_of_the_dev_part_are_shown_as_dev():
    bench = load_bench("cohort-size")
    row = bench.size("paper").row("LS-960 S=8")
    assert bench.paper_values(row) == {"dev-clean": 6.57, "test-clean": 6.66, "dev": 17.24, "test": 17.50}
    assert bench.paper_values(bench.size("paper").row("CV-en S=8")) == {"dev": 62.87, "test": 66.72}


@needs_paper
@pytest.mark.parametrize("name", NAMES)
def test_sources_are_where_they_are_said_to_be(name):
    text = load_bench(name).source
    for label, line in re.findall(r"((?:tab|fig)[\w:-]*), P:(\d+)", text):
        assert source().label(label) == int(line)
    for line in map(int, re.findall(r"P:(\d+)", text)):
        assert source().lines[line].strip()


@needs_paper
def test_users_are_counted_as_in_the_paper():
    speakers = {row[0]: int(numbers(row[2])[0]) for row in source().body("tab:data-stats").values()}
    checked = set()
    for bench, row in all_rows():
        if row.kind == "federated" and row.same is None:
            train = size_of(bench).part_of(row)["train"]
            assert config_of(bench, row.name).participation.population == speakers[train], (bench, row.name)
            checked.add(train)
    assert len(checked) == 10
    for part in ("CV-en-train-90", "CV-en-train-95", "CV-fr-train-90", "CV-de-train-90"):
        held_out = {"90": 10, "95": 5}[part[-2:]]
        assert size_of("cohort-size").parts[part].speakers == f"{held_out}%:"
        whole = speakers[part[:-3]]
        assert speakers[part] == whole - whole * held_out // 100


@needs_paper
def test_every_number_stands_on_its_line():
    for bench, row in all_rows():
        for key, value in row.paper.items():
            line = source().lines[source().place(row.line, key)]
            assert value in numbers(line.replace("\\%", " ").replace("/", " ")), (bench, row.name, key)


def printed(table: Table) -> dict[tuple[int, str], list[float]]:
    """Return the numbers of a table by line and set of speech, from left to right, but for untrained models."""
    found: dict[tuple[int, str], list[float]] = {}
    seed, seen = "", []
    for line, row in source().body(table.name, table.tabular).items():
        seed = row[0] or seed
        columns = dict(table.columns)
        if "S" in table.told and row[table.told["S"]] == "0":  # the seed model, once for every kind of clipping
            columns = dict(list(columns.items())[:2])
        if row in seen or (seen and table.bench == "model-size" and row[1:] in [one[1:] for one in seen]):
            continue  # printed twice in one table
        seen.append(row)
        for column, key in columns.items():
            values = numbers(row[column])
            nobody = seed == "None" if table.label != 0 else column == 1
            starts = column in table.start or (table.bench == "seed-quality" and column in (1, 3))
            if starts and nobody:
                assert values in ([100.0], [])
            elif column not in table.start or table.label is not None:
                found.setdefault((line, key or row[table.label or 0]), []).extend(values)
    return {place: values for place, values in found.items() if values}


def ours(table: Table) -> dict[tuple[int, str], list[tuple[Row, float]]]:
    """Return our rows by line and set of speech; without seed models where a table repeats them in every line."""
    found: dict[tuple[int, str], list[tuple[Row, float]]] = {}
    lines = source().body(table.name, table.tabular)
    for row in size_of(table.bench).rows:
        repeated = row.same is not None and table.start and table.label is None
        if row.line in lines and not repeated:
            for key, value in row.paper.items():
                found.setdefault((source().place(row.line, key), key), []).append((row, value))
    return found


@needs_paper
@each_table
def test_no_cell_of_a_table_is_forgotten(table):
    found = {place: [value for _, value in values] for place, values in ours(table).items()}
    assert found == printed(table)
    assert found


@needs_paper
@each_table
def test_seed_models_before_training(table):
    """A table that prints the seed model in every line measures it anew: the last digit differs."""
    if table.label is not None or not table.start:
        return
    rows = size_of(table.bench).rows
    for line, row in source().body(table.name, table.tabular).items():
        trained = [one for one in rows if one.line == line and one.same is None]
        for column in table.start:
            for value in numbers(row[column]):
                key, model = table.columns[column], trained[0].seed_model
                seeds = [one.paper[key] for one in rows if one.same == model and key in one.paper]
                assert value == 100 if model is None else value == pytest.approx(seeds[0], abs=0.051)


@needs_paper
@each_table
def test_runs_are_what_the_columns_say(table):
    checked = 0
    body = source().body(table.name, table.tabular)
    filled: list[str] = []
    for line, row in body.items():
        filled = [cell or above for cell, above in zip(row, filled or row, strict=True)]
        for one in size_of(table.bench).rows:
            if one.line == line and one.same is None and one.kind == "federated":
                for what, column in table.told.items():
                    assert _holds(what, filled[column], table.bench, one), (one.name, what, filled[column])
                    checked += 1
    assert checked or not table.told


def _holds(what: str, cell: str, bench: str, row: Row) -> bool:
    """Return whether a row is as a cell says."""
    config = config_of(bench, row.name)
    simple = {
        "S": config.participation.cohort_size,
        "K": config.participation.population,
        "lr": config.federated.schedule.lr,
        "warmup": config.federated.schedule.warmup,
        "clip_norm": config.privacy.clip_norm,
        "sigma": config.privacy.sigma_dp * 1e6,
        "mu": getattr(config.federated.local.rule, "mu", 0.0),
    }
    if what in simple:
        return float(cell.replace(",", "")) == pytest.approx(simple[what])
    if what == "seed":
        return cell == (row.seed_model or "None")
    if what == "data":
        train = size_of(bench).part_of(row)["train"]
        return cell == train.replace("-train", "")
    if what == "optimizer":
        return cell.lower() == config.federated.optimizer.name
    return {"\\cmark": True, "\\xmark": False}[cell] == (config.specaugment is not None)


@needs_paper
@pytest.mark.parametrize("table", [table for table in TABLES if table.label is not None], ids=lambda table: table.name)
def test_rows_are_under_their_headings(table):
    header = source().header(table.name)
    for (line, key), found in ours(table).items():
        row = cells(source().lines[line])
        headings = [header[column] for column in table.columns for _ in numbers(row[column])]
        columns = [column for column in table.columns for _ in numbers(row[column])]
        if len(headings) > len(found):  # the seed model that there is not
            headings, columns = headings[1:], columns[1:]
        for (one, _), heading, column in zip(found, headings, columns, strict=True):
            size = numbers(heading.replace("-IID", "").replace("\\,", ""))
            if column in table.start:
                assert one.same is not None
            elif size:
                config = config_of(table.bench, one.name)
                assert [config.participation.cohort_size] == size
                assert config.users.iid == ("IID" in heading)
                assert one.same is None
            else:
                assert one.kind == "central", key


@needs_paper
@pytest.mark.parametrize("name", ["table-ls-seed-results", "table-iid-ls"])
def test_seeds_and_users_are_those_of_the_group_of_columns(name):
    table = next(table for table in TABLES if table.name == name)
    first = min(source().body(name))
    above = next(source().lines[n] for n in range(first, 0, -1) if "train: " in source().lines[n])
    groups = re.findall(r"seed: ([\w-]+); train: ([\w-]+)", above)
    assert len(groups) == 3
    trained = [row for row, _ in ours(table)[first, "dev-clean"] if row.same is None]
    for place, row in enumerate(trained):
        assert (row.seed_model or "None", row.train) == groups[place // 5]


@needs_paper
@pytest.mark.parametrize(
    ("bench", "layered"),
    [
        ("dp-results", ["uniform", "dim"]),
        ("dp-fr-de", ["dim"]),
        ("dp-ls960", ["dim"]),
        ("dp-ablation", ["dim"]),
        ("model-size", ["uniform"]),
    ],
)
def test_clipping_is_that_of_the_column(bench, layered):
    table = next(table for table in TABLES if table.bench == bench)
    overall, by_layer = [column for column, key in table.columns.items() if key == "dev"]
    body = source().body(table.name)
    for (line, key), found in ours(table).items():
        rows = [row for row, _ in found if row.same is None]
        if key == "dev" and rows:
            expected = ["global"] * len(numbers(body[line][overall])) + layered[: len(numbers(body[line][by_layer]))]
            assert [config_of(bench, row.name).privacy.clipping for row in rows] == expected, line


@needs_paper
def test_large_cohorts_go_by_steps():
    for row in size_of("steps-vs-epochs").rows:
        if row.paper and row.kind == "federated" and row.same is None:
            local = config_of("steps-vs-epochs", row.name).federated.local
            assert (local.epochs, local.steps) == ((None, 10) if "steps" in row.name else (10, None))
    for seed in ("LS-100", "LS-960"):
        rows = [row.name for row in size_of("steps-vs-epochs").rows if row.seed_model == seed and row.paper]
        assert sum("epochs" in name for name in rows) == 6
        assert sum("steps" in name for name in rows) == 7


@needs_paper
def test_the_short_table_of_privacy_is_in_the_long_one():
    rows = [row for row in size_of("dp-results").rows if row.kind == "federated"]
    compared = 0
    for row in source().body("tab:dp-results").values():
        if row[1] == "-":
            assert [numbers(cell) for cell in row[9:]] == [[54.7], [61.2]] * 2
            continue
        made = (float(row[1]) * 1e-6, float(row[2]))
        trained = [one for one in rows if one.same is None and one.paper]
        mine = [one for one in trained if _noise("dp-results", one.name) == pytest.approx(made)]
        for key, places in (("dev", (9, 11)), ("test", (10, 12))):
            values = [value for place in places for value in numbers(row[place])]
            if values:
                assert values == [one.paper[key] for one in mine]
                compared += len(values)
    assert compared == 34


def _noise(bench: str, name: str) -> tuple[float, float | None]:
    privacy = config_of(bench, name).privacy
    return privacy.sigma_dp, privacy.clip_norm


@needs_paper
def test_central_baselines_in_captions():
    for bench in ("dp-results", "dp-fr-de", "dp-ls960", "dp-ablation"):
        rows = [row for row in size_of(bench).rows if row.kind == "central"]
        said = re.findall(r"([\d.]+)\\%/([\d.]+)\\%", source().lines[rows[0].line])
        assert [tuple(map(float, pair)) for pair in said] == [tuple(row.paper.values()) for row in rows]


@needs_paper
def test_every_number_is_of_a_table_or_a_caption():
    """Numbers of other benchmarks than a table's own are of the same runs."""
    known = {(row.line, tuple(row.paper.items())) for table in TABLES for row in size_of(table.bench).rows if row.paper}
    assert all((row.line, tuple(row.paper.items())) in known for _, row in all_rows() if row.paper)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("[{name: a, recipe: [smal]}]", "the recipe 'smal' does not exist. Did you mean 'small'"),
        ("[{name: a, recipe: [round]}]", "the recipe 'again' needs itself|the recipe 'round' needs itself"),
        ("[5]", "rows"),
        ("5", "rows"),
    ],
)
def test_wrong_recipes_are_one_line(tmp_path: Path, rows: str, message: str):
    recipes = "{small: {set: [seed=1]}, round: {recipe: [again]}, again: {recipe: [round]}}"
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"about: a\nsource: b\nfinding: c\nsizes: {{mini: {{preset: quick, recipes: {recipes}, rows: {rows}}}}}\n"
    )
    with pytest.raises(ConfigError, match=message) as error:
        load_bench(str(file))
    assert "\n" not in str(error.value)


def test_a_row_is_laid_over_its_recipes(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "about: a\nsource: b\nfinding: c\nsizes:\n  mini:\n    preset: tiny\n    recipes:\n"
        "      low: {kind: central, set: [seed=1, central.steps=5], unstated: [seed]}\n"
        "      high: {recipe: [low], set: [central.steps=6]}\n"
        "    rows: [{name: a, recipe: [high], set: [central.gradient_clip=2]}]\n"
    )
    (row,) = load_bench(str(file)).size("mini").rows
    assert row.kind == "central"
    expected = ("seed=1", "central.steps=5", "central.steps=6", "central.gradient_clip=2")
    assert row.settings == tuple(map(parse_setting, expected))
    assert row.unstated == ("seed",)


def test_notes_of_shared_files_come_before_its_own(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    head = "about: a\nsource: b\nfinding: c\nsizes: {mini: {extends: [mini, mini-private], rows: []"
    file.write_text(f"{head}, note: And this.}}}}\n")
    shared = load_bench("demo").size("mini").note
    assert shared.startswith("Seed models are trained with LARS")
    assert load_bench(str(file)).size("mini").note == f"{shared} And this."
    file.write_text(f"{head}, note: [And this.]}}}}\n")
    load_bench.cache_clear()
    with pytest.raises(ConfigError, match="Expected `note` to be a text"):
        load_bench(str(file))
