"""The page about real runs: what it says and does not say, and what is damaged."""

import csv
import io
import json
import math
import re
import shutil
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from report_runs import CLAIM, HOSTILE, NOISE, four_runs, make_data, make_run
from sottovoce.errors import DataError, PrivacyError
from sottovoce.files import only_writer
from sottovoce.privacy.accounting import rounded_up
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.reports.drawing.elements import Band, Cell, HtmlTable, Paragraph, esc, first_sentence
from sottovoce.reports.drawing.numbers import epsilon, percent
from sottovoce.reports.drawing.script import SCRIPT
from sottovoce.reports.live_page import follow
from sottovoce.reports.page import default_page, default_title
from sottovoce.reports.page import report as write_report
from sottovoce.reports.reading.bound_estimates import bound_estimates
from sottovoce.reports.reading.layers import delta_norms, place_of
from sottovoce.reports.reading.metrics import read_metrics
from sottovoce.reports.reading.records import read_records
from sottovoce.reports.reading.run_groups import group_runs
from sottovoce.reports.sections.lead import further_sentences, opening_sentences
from sottovoce.reports.sections.privacy_statement import as_html
from sottovoce.reports.sections.results_table import results_section
from sottovoce.runs.documents import BenchRow
from sottovoce.runs.folder import Run


@pytest.fixture(scope="module")
def report():
    """The page of four runs."""
    return four_runs()


@pytest.fixture(scope="module")
def folder(report):
    """The folder they are in."""
    return report.page.parent


@pytest.fixture(scope="module")
def page(report):
    return report.page.read_text(encoding="utf-8")


class Checked(HTMLParser):
    """Reads a page and complains where tags do not match."""

    VOID = ("meta", "link", "br")

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.targets, self.tags, self.words = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.targets += [values[key] for key in ("href", "xlink:href") if values.get(key, "").startswith("#")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


def read(page):
    checked = Checked()
    checked.feed(page)
    assert not checked.open
    return checked


def test_the_page_needs_nothing_else(page):
    checked = read(page)
    tags = {tag for tag, _ in checked.tags}
    assert [tag for tag, _ in checked.tags].count("script") == 1
    assert f"<script>{SCRIPT}</script>" in page
    assert not tags & {"iframe", "object", "embed", "base", "form", "audio", "video"}
    for tag, values in checked.tags:
        assert not any(key == "style" or key.startswith("on") for key in values)
        assert "src" not in values
        for key in ("href", "xlink:href"):
            assert values.get(key, "#").startswith(("#", "data:")), (tag, values)
    outside = set(re.findall(r"(?:https?:)?//[\w.]+", page)) - {"http://www.w3.org", "http://www.w3"}
    assert not outside
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_names_in_the_page_are_unique_and_links_lead_somewhere(page):
    checked = read(page)
    assert len(checked.ids) == len(set(checked.ids))
    names = {f"#{name}" for name in checked.ids}
    assert set(checked.targets) <= names
    assert {f"#{name}" for name in re.findall(r"url\(#([^)]+)\)", page)} <= names


def test_what_comes_from_outside_is_text_and_nothing_else(page):
    assert page.count("<script>") == page.count("<style>") == 1
    assert esc(HOSTILE) in page
    assert "<h1>Four &lt;runs&gt;</h1>" in page
    assert "A sentence &amp; more." in page


def test_every_part_is_there_with_its_figure_and_its_numbers(report, page):
    titles = re.findall(r"<h2>([^<]+)</h2>", page)
    assert titles == [
        *("Results", "WER over steps", "WER against privacy", "Delta norms per layer", "Training dynamics"),
        *("Signal, noise and trust ratio per layer", "WER per speaker", "Privacy statement"),
        *("Terms of the convergence bound", "Configuration and provenance"),
    ]
    names = {file.name for file in report.files}
    assert {file.name for file in (report.page.parent / "report_files").iterdir()} == names
    for name in (
        *("wer-over-steps", "wer-over-epsilon", "delta-norms", "imbalance", "dynamics", "signal-to-noise"),
        *("trust-ratios", "wer-per-speaker", "bound-terms", "central-dynamics", "central-gradient-norms"),
    ):
        with Image.open(report.page.parent / "report_files" / f"{name}.png") as image:
            image.verify()
    figures = re.findall(r'<figure role="group" aria-label="([^"]+)">.*?<figcaption>(.+?)</figcaption>', page, re.S)
    assert len(figures) == sum(name.endswith(".png") for name in names)
    assert all(len(alt) > 20 and len(caption) > 40 for alt, caption in figures)


def rows_of(report, name):
    text = (report.page.parent / "report_files" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def test_the_numbers_are_those_of_the_runs(report, page, folder):
    rows = rows_of(report, "results")
    assert [row["run"] for row in rows] == [f"{HOSTILE}, seed 0", f"{HOSTILE}, seed 1", "free", "central"]
    for row, name in zip(rows[:2], ("dim0", "dim1"), strict=True):
        result = json.loads((folder / name / "result.json").read_text())
        assert float(row["wer_dev"]) == result["dev_wer"]
        assert float(row["wer_test"]) == result["test"]["wer"]
        assert float(row["epsilon_rdp"]) == result["epsilon_rdp"]
        assert f"<td>{epsilon(result['epsilon_rdp'])}</td>" in page
        assert f"<td>{epsilon(result['epsilon_pld'])}</td>" in page
    assert (rows[2]["epsilon_rdp"], rows[3]["epsilon_rdp"]) == ("", "")
    steps = list(Run(folder / "dim0").log.lines())
    dynamics = [row for row in rows_of(report, "dynamics") if row["run"] == f"{HOSTILE}, seed 0"]
    noted = [line["not_private"]["gradient_norm"] for line in steps if "not_private" in line]
    assert [float(row["gradient_norm"]) if row["gradient_norm"] else None for row in dynamics] == noted
    speakers = {row["speaker"] for row in rows_of(report, "wer-per-speaker") if row["set"] == "test"}
    assert speakers == {"gus", "hal"}
    assert {(row["column"], row["value"]) for row in rows_of(report, "wer-by-group")} >= {("sex", "f"), ("sex", "m")}


def test_delta_norms_are_pooled_over_users_and_steps(report, folder):
    (record,) = read_records([folder / "free"])
    layer = "blocks.1.w1.weight"
    users = [line["not_private"]["cohort"] for line in record.steps]
    means = [line["not_private"]["layers"].get("delta_norm", {}).get(layer, 0.0) for line in record.steps]
    found = delta_norms(record)[layer]
    assert found.mean == pytest.approx(sum(map(math.prod, zip(users, means, strict=True))) / sum(users))
    row = next(row for row in rows_of(report, "delta-norms") if (row["run"], row["layer"]) == ("free", layer))
    assert float(row["norm_mean"]) == found.mean
    assert int(row["users_and_steps"]) == sum(users)
    assert int(row["parameters"]) == 16 * 32


def unlabelled(page):
    """Return a page whose cells do not say what they are on narrow screens."""
    return re.sub(r' data-label="[^"]*"', "", page)


def test_seeds_of_a_row_are_one_line_with_their_spread(page, folder):
    wers = [json.loads((folder / name / "result.json").read_text())["dev_wer"] for name in ("dim0", "dim1")]
    line = f'{percent(sum(wers) / 2)}<span class="small">{percent(min(wers))} to {percent(max(wers))}</span>'
    assert f'<td class="ours">{line}</td>' in unlabelled(page)
    assert '<span class="muted">n = 2</span>' in page


def test_claims_and_the_papers_numbers_cannot_be_taken_for_ours(page):
    cells = unlabelled(page)
    assert f'<td class="claim">{rounded_up(CLAIM["epsilon_pld"])} at 2,000 of 1 million</td>' in cells
    assert '<td class="paper">17.9</td><td class="paper">21.2</td>' in cells
    assert "ε at other sizes" in page
    assert "WER % in the paper" in page
    text = " ".join(" ".join(read(page).words).split())
    assert "where no model was trained" in text
    assert "was measured at the run's own S and K" in text


def test_the_privacy_statement_is_that_of_the_ledger(page):
    text = " ".join(" ".join(read(page).words).split())
    for words in (
        "This was a simulation.",
        "What an attacker can tell",
        "What is not covered",
        "The ledger is valid: ",
    ):
        assert words in text
    assert "free : no guarantee, because there is no noise" in text
    assert "Central training sees the audio of all speakers" in text


def test_the_bound_says_where_it_does_not_apply(page, report):
    text = " ".join(" ".join(read(page).words).split())
    assert "κ is positive for Theorem 2 and Theorem 3" in text  # eta T_loc = 1
    assert "κ is not positive: the theorems do not apply" in text  # eta T_loc = 2
    terms_of = {row["term"] for row in rows_of(report, "bound-terms")}
    assert {"DP noise", "clipping bias", "variance of updates"} <= terms_of
    kappas = {
        row["run"]: float(row["value"])
        for row in rows_of(report, "bound-estimates")
        if row["quantity"] == "kappa_theorem_2"
    }
    assert kappas == pytest.approx({HOSTILE: 1.0, "free": -7.0})


def test_estimates_come_from_the_log(folder):
    (record,) = read_records([folder / "dim0"])
    found = bound_estimates(record)
    lines = [line["not_private"] for line in record.steps]
    assert found.sampling_prob == 0.5
    assert found.clip_norms["conv.weight"] == pytest.approx(
        0.5 * math.sqrt(found.sizes["conv.weight"] / sum(found.sizes.values()))
    )
    assert found.trust["ln.weight"] == max(line["trust_ratios"]["ln.weight"] for line in record.steps)
    smooth = [line["smoothness"] for line in lines if line["smoothness"] is not None]
    assert found.smoothness == pytest.approx(sum(smooth) / len(smooth))
    assert found.first_loss == next(line["loss"] for line in lines if line["loss"] is not None)
    assert found.not_covered == ("momentum (b1 = 0.9)", "bias correction", "local clipping to 1")


# What is missing, unfinished or broken


@pytest.fixture
def broken(folder, tmp_path):
    """A copy of a run that a test may damage."""
    shutil.copytree(folder / "dim0", tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_an_older_run_shows_what_it_has(broken, sotto):
    for name in ("evaluation.json", "row.json", "ledger.jsonl", "result.json"):
        (broken / name).unlink()
    lines = list(Run(broken).log.lines())
    (broken / "private.jsonl").unlink()  # older runs have everything in one file
    for line in lines:
        for key in ("gradient_norm", "local_variance", "smoothness", "local_steps"):
            line.get("not_private", {}).pop(key, None)
        for key in ("gradient_norm", "user_spread"):
            line.get("not_private", {}).get("layers", {}).pop(key, None)
    (broken / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:-3]) + '{"step": 5, "half')
    outcome = sotto("report", broken)
    assert outcome.code == 0
    assert "is unfinished: 4 of 5 steps" in outcome.stderr
    page = (broken / "report.html").read_text(encoding="utf-8")
    text = " ".join(" ".join(read(page).words).split())
    assert "run is unfinished: 4 of 5 steps." in text
    assert "there is no evaluation.json. A run writes this file when it ends." in text
    assert "There is no ledger" in text
    assert "1 of these runs did not log the local gradient" in text
    assert "paper" not in re.findall(r"<th[^>]*>([^<]+)</th>", page)


def test_a_folder_that_is_no_run_and_a_damaged_run_are_one_line(broken, tmp_path, sotto):
    assert "is not a run" in sotto("report", tmp_path).error
    assert "There is no folder" in sotto("report", tmp_path / "nothing").error
    assert "is a folder" in sotto("report", broken, "--out", tmp_path).error
    lines = (broken / "metrics.jsonl").read_text().splitlines()
    lines[2] = lines[2][:40]
    (broken / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert sotto("report", broken).error.endswith("metrics.jsonl: line 3 is damaged. Remove that line, and try again.")
    (broken / "metrics.jsonl").write_text("[1]\n")
    assert "line 1 is damaged" in sotto("report", broken).error
    (broken / "metrics.jsonl").write_text('{"step": 1, "central_lr": "x"}\n')
    assert "line 1 is damaged" in sotto("report", broken).error
    (broken / "metrics.jsonl").unlink()
    (broken / "private.jsonl").unlink()
    (broken / "row.json").write_text('{"row": "a", "claims": 5}')
    assert "row.json is damaged" in sotto("report", broken).error
    (broken / "row.json").write_text('{"row": "a", "dev": ["a"]}')
    assert "row.json is damaged" in sotto("report", broken).error
    (broken / "row.json").unlink()
    for damaged in ("{", '{"dev": {"wer": 0.5, "steps": 5, "speakers": {}, "groups": {}}}'):
        (broken / "evaluation.json").write_text(damaged)
        assert "evaluation.json is damaged" in sotto("report", broken).error
    (broken / "evaluation.json").unlink()
    (broken / "result.json").write_text('{"epsilon_rdp": "a"}')
    assert "result.json is damaged" in sotto("report", broken).error
    (broken / "config.json").write_text("[]")
    assert "config.json is damaged" in sotto("report", broken).error
    assert not list(tmp_path.rglob("*.html"))


def test_what_is_not_a_run_is_left_out_if_something_is(broken, sotto):
    (broken.parent / "notes.txt").write_text("not a run")
    (broken / "metrics.jsonl").unlink()  # there is little to draw
    (broken / "private.jsonl").unlink()
    outcome = sotto("report", broken, broken.parent / "notes.txt")
    assert outcome.code == 0, outcome.stderr
    assert "Left out, because they are not runs: " in outcome.stderr
    assert "There is no folder" in sotto("report", broken, broken.parent / "typo").error


def test_half_a_line_at_the_end_is_of_a_run_that_goes_on(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "lr": 0.1}\n{"step": 2, "l')
    assert read_metrics(tmp_path) == [{"step": 1, "lr": 0.1}]
    assert read_metrics(tmp_path / "none") == []


def test_values_by_layer_are_read_back_as_they_were(tmp_path):
    layers = {f"blocks.{block}.w1.weight": block / 7 for block in range(40)} | {"conv.bias": None}
    line = {
        "step": 1,
        "not_private": {"layers": {"delta_norm": layers}, "seconds": {"sum": 0.1}},
        "trust_ratios": layers,
    }
    (tmp_path / "metrics.jsonl").write_text(2 * (json.dumps(line) + "\n"))
    first, second = read_metrics(tmp_path)
    assert dict(first["trust_ratios"]) == dict(second["not_private"]["layers"]["delta_norm"]) == layers
    assert first["not_private"]["seconds"] == {"sum": 0.1}
    assert first["trust_ratios"].get("none") is None


def test_a_ledger_that_was_changed_gives_no_page(broken, sotto):
    lines = (broken / "ledger.jsonl").read_text().splitlines()
    (broken / "ledger.jsonl").write_text("\n".join([*lines[:2], *lines[3:]]) + "\n")
    (broken / "report.html").write_text("as it was")
    with pytest.raises(PrivacyError, match="does not follow"):
        write_report([broken], broken / "report.html")
    assert "does not follow from the one before it" in sotto("report", broken).error
    assert (broken / "report.html").read_text() == "as it was"


def test_the_epsilon_of_an_unfinished_run_is_that_of_its_ledger(broken):
    (broken / "result.json").unlink()
    metrics = (broken / "metrics.jsonl").read_text().splitlines()
    lines = [{**line, **({"epsilon": 1e-3} if "epsilon" in line else {})} for line in map(json.loads, metrics)]
    (broken / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (record,) = read_records([broken])
    ledger = map(json.loads, (broken / "ledger.jsonl").read_text().splitlines())
    releases = [line for line in ledger if "release" in line]
    assert record.epsilons == Run(broken).epsilon == Epsilons(rdp=releases[-1]["epsilon"])


def test_runs_are_read_once_and_have_names_of_their_own(folder, tmp_path):
    for parent in ("one", "two"):
        shutil.copytree(folder / "central", tmp_path / parent / "run", symlinks=True)
    paths = [tmp_path / "one" / "run", tmp_path / "two" / "run", tmp_path / "one" / ".." / "one" / "run"]
    records = read_records(paths)
    assert [record.name for record in records] == ["run (one/run)", "run (two/run)"]
    assert len({group.colour for group in group_runs(records)}) == 2
    with pytest.raises(DataError, match="nothing to report"):
        read_records([])


def test_the_command_says_what_it_wrote_and_writes_the_same_bytes_again(folder, tmp_path, sotto):
    for name in ("central", "twin"):
        shutil.copytree(folder / "central", tmp_path / name, symlinks=True)
    found = sotto("report", tmp_path / "central", tmp_path / "twin", "--json").document
    assert found["report"] == str(tmp_path / "report.html")
    assert [run["kind"] for run in found["runs"]] == ["central", "central"]
    assert all(Path(file).is_file() for file in found["files"])
    first = (tmp_path / "report.html").read_bytes()
    assert b"<title>central, twin</title>" in first
    assert b"convergence bound" not in first  # nor any other part that only federated runs have
    assert b"trust ratio" not in first
    assert sotto("report", tmp_path / "central", tmp_path / "twin").code == 0
    assert (tmp_path / "report.html").read_bytes() == first


def test_the_call_needs_only_the_folder_of_a_run(broken):
    for name in ("metrics.jsonl", "row.json"):  # without the row, whose claims are further points
        (broken / name).unlink()
    written = write_report(str(broken))
    assert written.page == broken / "report.html"
    assert written.folder == broken / "report_files"
    assert [run.path for run in written.runs] == [broken]
    page = written.page.read_text(encoding="utf-8")
    assert "<title>run</title>" in page
    assert "WER against privacy" not in page  # a single point


def test_the_page_is_beside_all_runs_and_named_after_them(tmp_path):
    folders = [tmp_path / "a" / "one", tmp_path / "a" / "two", tmp_path / "b" / "three", tmp_path / "b" / "four"]
    assert default_page(folders[:1]) == folders[0] / "report.html"
    assert default_page(folders[:2]) == tmp_path / "a" / "report.html"
    assert default_page(folders) == tmp_path / "report.html"
    assert default_title(folders[:3]) == "one, two, three"
    assert default_title(folders) == "one, two and 2 other runs"


def words_of(page):
    return " ".join(" ".join(read(page).words).split())


def test_the_page_says_which_parameters_were_trained(tmp_path):
    settings = (*NOISE, "privacy.clipping=dim", "federated.trainable=[ln, output]")
    run = make_run("federated", tmp_path / "run", make_data(tmp_path), settings)
    text = words_of(write_report(run).page.read_text(encoding="utf-8"))
    assert "Only these parameters were trained: ln, output." in text
    assert "trained parameters ln, output" in text
    (record,) = read_records([run])
    found = bound_estimates(record)
    assert found.sizes.keys() == found.trust.keys() == found.clip_norms.keys()
    assert sum(norm**2 for norm in found.clip_norms.values()) == pytest.approx(0.5**2)
    assert {place_of(layer).kind for layer in found.sizes} == {"ln1", "ln2", "rest"}


@pytest.mark.parametrize("trainable", ["all", None])
def test_where_all_parameters_were_trained_the_page_says_nothing(broken, trainable):
    document = json.loads((broken / "config.json").read_text())
    document["config"]["federated"].pop("trainable", None)
    if trainable is not None:
        document["config"]["federated"]["trainable"] = trainable
    (broken / "config.json").write_text(json.dumps(document))
    (record,) = read_records([broken])
    assert record.trainable is None
    assert not any("were trained" in sentence for sentence in further_sentences(group_runs([record])))


def test_long_text_folds_behind_its_first_sentence_and_nothing_is_lost():
    short = "One. Two."
    assert first_sentence(short) == (short, "")
    long = "ε &lt; 1 (<em>e.g. a, b</em>) is small. " + "It goes on. " * 20
    first, rest = first_sentence(long)
    assert first == "ε &lt; 1 (<em>e.g. a, b</em>) is small."
    assert f"{first} {rest}" == long
    inside = "<em>One. " + "Two. " * 50 + "</em>"
    assert first_sentence(inside) == (inside, "")
    html = Paragraph(long).render()
    assert html.startswith(f'<p>{first}</p><details class="more"><summary>More</summary><p>It goes on.')
    assert Paragraph(long, "warning").render() == f'<p class="warning">{long}</p>'  # warnings stay in sight


def test_rows_of_several_benchmarks_are_told_apart(folder, tmp_path):
    for name, bench in (("one", "demo"), ("two", "real"), ("own", None)):
        shutil.copytree(folder / "dim0", tmp_path / name, symlinks=True)
        if bench is None:
            (tmp_path / name / "row.json").unlink()
            continue
        row = json.loads((folder / "dim0" / "row.json").read_text())
        (tmp_path / name / "row.json").write_text(json.dumps({**row, "bench": bench, "row": "dim", "label": "dim"}))
    paths = [tmp_path / name for name in ("one", "own", "two")]
    groups = group_runs(read_records(paths))
    assert [(group.name, group.row, group.bench) for group in groups] == [
        ("dim (demo, mini)", "dim", "demo, mini"),
        ("own", "own", None),
        ("dim (real, mini)", "dim", "real, mini"),
    ]
    assert "The WER on test ranges" in " ".join(opening_sentences(groups))
    page = results_section(groups).render()
    assert '<th class="text">benchmark</th>' in page
    assert '<td class="text">dim</td><td class="text">real, mini</td>' in unlabelled(page)
    assert page.count('class="panel"') == 3  # one for each benchmark, and one for other runs
    assert "on set" not in page  # all were evaluated on the same one

    evaluations = json.loads((tmp_path / "two" / "evaluation.json").read_text())
    evaluations["test"]["population"] = "0" * 64
    (tmp_path / "two" / "evaluation.json").write_text(json.dumps(evaluations))
    groups = group_runs(read_records(paths))
    page = unlabelled(results_section(groups).render())
    assert "evaluated on 2 different test sets" in " ".join(opening_sentences(groups))
    assert [page.count(f"<td>{letter}</td>") for letter in "ABC"] == [2, 1, 0]


def test_a_run_that_two_benchmarks_share_is_in_both(folder):
    path = folder / "dim0"
    row = BenchRow.read(path).model_copy(update={"row": "dim", "label": "dim, seed 0"})
    rows = {path: [row, row.model_copy(update={"bench": "other"})]}
    records = read_records([path, path], rows)
    assert [record.name for record in records] == ["dim, seed 0 (b, mini)", "dim, seed 0 (other, mini)"]
    assert [group.bench for group in group_runs(records)] == ["b, mini", "other, mini"]


def test_a_page_follows_a_training_until_it_ends(folder, tmp_path):
    run, page = tmp_path / "run", tmp_path / "live.html"
    run.mkdir()
    lines = (folder / "central" / "private.jsonl").read_text().splitlines(keepends=True)
    said, written = [], []
    following = threading.Thread(target=lambda: written.append(follow(run, page, every=0.1, say=said.append)))

    def wait_for(condition):
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.05)

    with only_writer(run):
        following.start()
        wait_for(lambda: said)
        assert "Waiting for" in said[0]
        shutil.copy(folder / "central" / "config.json", run / "config.json")
        (run / "private.jsonl").write_text("".join(lines[:2]))
        wait_for(page.exists)
        first = page.read_text(encoding="utf-8")
        assert '<body data-reload="0.1">' in first
        assert "so far 2 of 6 steps" in first
        assert not (tmp_path / "live_files").exists()
        (run / "private.jsonl").write_text("".join(lines))
    following.join(120)
    last = page.read_text(encoding="utf-8")
    assert "<body>" in last
    assert 'http-equiv="refresh"' not in last
    assert "6 steps" in last
    assert written[0].files


def test_tables_and_statements_become_html():
    table = HtmlTable(
        ["a", "b"], [["x", Cell("1", kind="claim")]], "said", bands=[Band("", 1), Band("both", 1, "claim")]
    )
    assert '<th colspan="1" class="claim">both</th>' in table.render()
    assert '<td class="text">x</td><td class="claim">1</td>' in table.render()
    html = as_html("# Title\n\n## Part\n\n| a |\n|---|\n| <b>1</b> |\n")
    assert "Title" not in html
    assert "<h3>Part</h3>" in html
    assert '<div class="scroll" tabindex="0"><table>' in html
    assert "&lt;b&gt;1&lt;/b&gt;" in html


def test_the_page_of_a_secure_run_shows_nothing_of_its_users(tmp_path):
    settings = (*NOISE, "randomness.source=secure", "privacy.diagnostics=true", "participation.population=1234")
    run = make_run("federated", tmp_path / "secure", make_data(tmp_path), settings)
    (record,) = read_records([run])
    hashes = json.loads((run / "config.json").read_text())["data"]
    assert record.secure
    assert record.users is None
    assert not any("not_private" in line for line in (*record.steps, *record.dev_evaluations))
    page = write_report([run], tmp_path / "page" / "report.html").page.read_text(encoding="utf-8")
    assert hashes["dev"] in page
    assert hashes["users"] not in page
    assert f"<code>{run}</code>" not in page
    assert "the store has" not in page
