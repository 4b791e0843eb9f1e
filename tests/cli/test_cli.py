"""The commands as a user gives them."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import soundfile

from conftest import loaded
from sottovoce.cli.command_line import command_line

PNG = b"\x89PNG\r\n\x1a\n"


def test_from_a_table_to_statistics(sotto, make_table, tmp_path):
    table, out = make_table({"ann": 4, "bob": 2}), tmp_path / "s"
    made = sotto("data", "prepare", "table", table, "--out", out, "--workers", 2, "--json").document
    assert (made["utterances"], made["speakers"], made["rejected"]) == (6, 2, 0)
    outcome = sotto("data", "stats", out, "--figure", tmp_path / "f.png", "--json")
    (row,) = outcome.document["subsets"]
    assert row["hours"] == pytest.approx(made["hours"])
    assert (tmp_path / "f.png").read_bytes().startswith(PNG)
    assert "ann" not in sotto("data", "stats", out, "--figure", tmp_path / "f.png").stdout


def test_the_json_is_alone_on_stdout(sotto, make_table, tmp_path):
    table = make_table({"ann": 2})
    for words in (
        ["data", "prepare", "table", table, "--out", tmp_path / "s", "--workers", 1, "--dry-run"],
        ["data", "prepare", "table", table, "--out", tmp_path / "s", "--workers", 1],
        ["data", "inspect", tmp_path / "s"],
        ["data", "inspect", tmp_path / "s", "--rejected"],
        ["data", "stats", tmp_path / "s", "--figure", tmp_path / "f.png"],
        ["data", "export", tmp_path / "s", "ann/ann000", "--out", tmp_path / "a.wav"],
        ["config", "show", "quick"],
        ["config", "list"],
    ):
        outcome = sotto(*words, "--json")
        assert outcome.code == 0, outcome.stderr
        json.loads(outcome.stdout)


def test_a_dry_run_says_size_and_time_and_writes_nothing(sotto, make_table, tmp_path):
    table = make_table({"ann": 20, "bob": 10})
    plan = sotto("data", "prepare", "table", table, "--out", tmp_path / "s", "--dry-run", "--json").document
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]
    made = sotto("data", "prepare", "table", table, "--out", tmp_path / "s", "--json").document
    assert (plan["utterances"], plan["speakers"]) == (30, 2)
    assert plan["hours"] == pytest.approx(made["hours"], rel=0.01)
    size = sum(path.stat().st_size for path in (tmp_path / "s").iterdir())
    assert plan["bytes"] == pytest.approx(size, rel=0.15)
    assert plan["seconds"] > 0


def test_inspecting_one_speaker_and_what_was_rejected(sotto, make_table, tmp_path):
    table = make_table({"ann": 30, "bob": 20})
    (table.parent / "bob" / "bob003.flac").write_bytes(b"broken")
    sotto("data", "prepare", "table", table, "--out", tmp_path / "s")
    shown = sotto("data", "inspect", tmp_path / "s", "--speaker", "bob", "--limit", 3, "--json").document
    assert shown["total"] == 19
    assert [row["utterance"] for row in shown["utterances"]] == ["bob/bob000", "bob/bob001", "bob/bob002"]
    rejected = sotto("data", "inspect", tmp_path / "s", "--rejected", "--json").document
    assert rejected["rejected"][0]["utterance"] == "bob/bob003"
    assert rejected["rejected"][0]["reason"] == "unreadable audio"
    assert "Speaker 'eve' not in" in sotto("data", "inspect", tmp_path / "s", "--speaker", "eve").error
    assert sotto("data", "inspect", tmp_path / "s", "--verify").code == 0
    (tmp_path / "s" / "tokens.npy").write_bytes((tmp_path / "s" / "tokens.npy").read_bytes()[:-1] + b"\7")
    assert "is damaged: tokens.npy" in sotto("data", "inspect", tmp_path / "s", "--verify").error


def test_export_gives_the_audio_back(sotto, make_table, tmp_path):
    table = make_table({"ann": 2})
    sotto("data", "prepare", "table", table, "--out", tmp_path / "s")
    out = tmp_path / "back.flac"
    assert sotto("data", "export", tmp_path / "s", "ann/ann001", "--out", out).code == 0
    source = table.parent / "ann" / "ann001.flac"
    assert (soundfile.read(out, dtype="int16")[0] == soundfile.read(source, dtype="int16")[0]).all()
    assert "no utterance 'x'" in sotto("data", "export", tmp_path / "s", "x").error
    assert "should end in .wav" in sotto("data", "export", tmp_path / "s", "ann/ann001", "--out", "x.mp3").error
    source.unlink()
    assert "can no longer be read" in sotto("data", "export", tmp_path / "s", "ann/ann001", "--out", out).error


def test_splits_are_written_once_and_can_be_used(sotto, make_table, tmp_path):
    table = make_table(dict.fromkeys("abcdefghij", 2))
    store, out = tmp_path / "s", tmp_path / "split"
    sotto("data", "prepare", "table", table, "--out", store)
    rows = sotto("data", "split", store, "--fraction", "0.3", "--out", out, "--json").document["subsets"]
    assert [row["speakers"] for row in rows] == [3, 7]
    assert [row["subset"] for row in rows] == ["corpus-30", "corpus-70"]
    seed, federated = ((out / f"{name}.txt").read_text().split() for name in ("seed", "federated"))
    assert sorted(seed + federated) == list("abcdefghij")
    part = sotto(
        "data", "stats", store, "--speakers", out / "seed.txt", "--figure", tmp_path / "f.png", "--json"
    ).document
    assert part["subsets"][0]["hours"] == pytest.approx(rows[0]["hours"])
    same = ("data", "stats", f"{store}@{out / 'seed.txt'}", "--figure", tmp_path / "f.png", "--json")
    assert sotto(*same).document["subsets"] == [part["subsets"][0] | {"subset": "corpus seed"}]
    named = sotto("data", "split", store, "--fraction", "0.3", "--names", "dev,rest", "--out", tmp_path / "n", "--json")
    assert [row["subset"] for row in named.document["subsets"]] == ["corpus dev", "corpus rest"]
    assert sotto("data", "split", store, "--fraction", "0.3", "--out", out).code == 0  # the same again: nothing to do
    assert "already exists" in sotto("data", "split", store, "--count", 2, "--out", out).error
    assert "exactly one of" in sotto("data", "split", store, "--out", tmp_path / "x").error
    assert "Expected --where" in sotto("data", "split", store, "--where", "x", "--out", tmp_path / "x").error
    assert not (tmp_path / "x").exists()


def test_merging_on_the_command_line(sotto, make_table, tmp_path):
    for name in ("one", "two"):
        sotto("data", "prepare", "table", make_table({name: 2}, name=name), "--out", tmp_path / f"{name}-s")
    words = ["data", "merge", tmp_path / "one-s", tmp_path / "two-s", "--out", tmp_path / "both", "--json"]
    plan = sotto(*words, "--dry-run").document
    assert not (tmp_path / "both").exists()
    outcome = sotto(*words)
    assert plan["utterances"] == outcome.document["subsets"][0]["utterances"]
    assert plan["bytes"] == pytest.approx((tmp_path / "both" / "features.f16").stat().st_size, rel=0.06)
    assert outcome.document["subsets"][0]["speakers"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["data", "prepare", "librispeech", "/nowhere", "--subset", "dev-clean", "--out", "s"],
            "/nowhere does not exist",
        ),
        (
            ["data", "prepare", "commonvoice", "/nowhere", "--language", "xx", "--out", "s"],
            "--language 'xx' is not",
        ),
        (["data", "prepare", "table", "/nowhere.tsv", "--out", "s"], "/nowhere.tsv does not exist"),
        (["data", "prepare", "lhotse", "/a.jsonl", "/b.jsonl", "--out", "s"], "/a.jsonl does not exist"),
        (["data", "prepare", "table", "x.tsv", "--out", "s", "--concatenate", "5:2"], "such as 2:5"),
        (["data", "prepare", "preset", "nope", "--out", "s"], "There is no preset 'nope'"),
        (["data", "prepare", "synthetic", "--out", "s", "--speakers", "0"], "--speakers 0 is not valid"),
        (["data", "stats", "/nowhere"], "There is no store at /nowhere"),
        (["data", "stats", "/"], "/ contains no store"),
        (["data", "inspect", "/etc/hostname"], "There is no store at"),
        (["config", "show", "quick", "--set", "sed=1"], "Did you mean 'seed'"),
        (["data", "prepare", "librispeech"], "Missing argument 'ROOT'"),
        (["data", "stat"], "No such command 'stat'"),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(sotto, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    outcome = sotto(*words)
    assert outcome.code in (1, 2)
    assert message in outcome.error
    assert outcome.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(sotto, make_table, tmp_path):
    (tmp_path / "file").write_text("x")
    error = sotto("data", "prepare", "table", make_table({"a": 1}), "--out", tmp_path / "file" / "s").error
    assert "Cannot write to" in error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_line(sotto, make_table, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    error = sotto("data", "prepare", "table", make_table({"a": 1}), "--out", tmp_path / "locked" / "s").error
    assert "Cannot write to" in error


def test_config_shows_where_values_come_from(sotto):
    shown = sotto("config", "show", "quick", "--set", "batching.seconds=30", "--json").document
    assert shown["config"]["batching"]["seconds"] == 30
    assert shown["sources"]["batching.seconds"] == "--set batching.seconds"
    assert shown["sources"]["corpus.speakers"] == "preset quick"
    assert shown["meanings"]["privacy.clip_norm"].startswith("C")
    assert set(shown["sources"]) - set(shown["meanings"]) == set()  # every key is explained
    assert "default" in sotto("config", "show", "quick").stdout
    assert " meaning " in sotto("config", "show", "quick", "--meaning").stdout


def test_help_and_version(sotto):
    for words in (["--help"], ["data", "--help"], ["data", "prepare", "table", "--help"]):
        outcome = sotto(*words)
        assert outcome.code == 0
        assert "Usage" in outcome.stdout
    assert sotto("--version").stdout.startswith("sotto ")
    for words in ([], ["data"]):
        outcome = sotto(*words)
        assert "Usage" in outcome.stderr + outcome.stdout
        assert "error" not in outcome.stderr


def test_the_help_of_every_command_ends_with_an_example():
    def commands(command, words):
        for name, inner in getattr(command, "commands", {}).items():
            yield from commands(loaded(inner), [*words, name])
        if not hasattr(command, "commands"):
            yield " ".join(words), command.help

    for name, text in commands(command_line(), ["sotto"]):
        assert re.match(rf"Example: {name}\b", text.strip().splitlines()[-1]), name


def test_the_list_of_commands_shows_the_first_paragraph_of_each_help():
    for name, command in command_line().commands.items():
        assert " ".join(command.load().help.split("\n\n")[0].split()) == command.help, name


def test_a_part_can_be_split_again(sotto, make_table, tmp_path):
    store, out = tmp_path / "s", tmp_path / "split"
    sotto("data", "prepare", "table", make_table(dict.fromkeys("abcdefghij", 2)), "--out", store)
    sotto("data", "split", store, "--count", 4, "--names", "heldout,users", "--out", out)
    again = ("data", "split", f"{store}@{out / 'heldout.txt'}", "--count", 2, "--names", "dev,test", "--out", out / "h")
    assert [row["subset"] for row in sotto(*again, "--json").document["subsets"]] == ["corpus dev", "corpus test"]
    dev, test = ((out / "h" / f"{name}.txt").read_text().split() for name in ("dev", "test"))
    assert sorted(dev + test) == sorted((out / "heldout.txt").read_text().split())
    assert json.loads((out / "h" / "split.json").read_text())["method"]["of"] == str(out / "heldout.txt")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("participation.cohort_size=abc", "expected a number."),
        ("participation.population=1.5", "expected a whole number."),
        ("participation.sampling=foo", "expected 'poisson', 'cyclic', 'fixed' or 'everyone'."),
        ("privacy.clip_norm=-1", "expected at least 1e-30."),
        ("users.iid=7", "expected true or false."),
        ("batching=7", "expected keys and values."),
    ],
)
def test_a_wrong_value_is_explained_in_our_words(sotto, setting, message):
    key = setting.partition("=")[0]
    error = sotto("config", "show", "quick", "--set", setting).error
    assert error.startswith(f"error: {key}=")
    assert error.endswith(f"is not valid: {message}")


def test_a_cohort_larger_than_the_population_names_both_settings(sotto):
    error = sotto("config", "show", "tiny", "--set", "participation.population=84").error
    assert "cohort_size=1024 (the default) <= population=84" in error
    assert error.endswith("Set both participation.population and participation.cohort_size.")


def test_an_interrupt_says_how_to_go_on(make_table, tmp_path):
    table = make_table({"a": 200}, seconds=2.0)
    command = [sys.executable, "-m", "sottovoce", "data", "prepare", "table", str(table), "--out", str(tmp_path / "s")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "s.partial" / "journal.jsonl").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "Interrupted. Run the same command again to resume."
    assert "Traceback" not in stderr


def test_real_speech_through_the_command_line(sotto, real_speech, tmp_path):
    words = [
        "data",
        "prepare",
        "librispeech",
        real_speech / "LibriSpeech",
        "--subset",
        "dev-clean",
        "--subset",
        "test-clean",
    ]
    made = sotto(*words, "--out", tmp_path / "s", "--json").document
    assert (made["utterances"], made["speakers"]) == (418, 40)


def test_what_people_write_is_never_taken_for_markup(sotto, make_table, tmp_path):
    table = make_table({"y[/b]z": 2, "[red]x": 2})
    label = "a$b_c^{$ :smile: [/x]"
    outcome = sotto("data", "prepare", "table", table, "--out", tmp_path / "s[/x]", "--label", label, "--workers", 1)
    assert outcome.code == 0, outcome.stderr
    assert label in outcome.stdout
    shown = sotto("data", "inspect", tmp_path / "s[/x]").stdout
    assert "y[/b]z" in shown
    assert "[red]x" in shown
    assert sotto("data", "stats", tmp_path / "s[/x]", "--figure", tmp_path / "f.png").code == 0


def test_export_notices_that_the_source_changed(sotto, make_table, tmp_path):
    table = make_table({"ann": 2})
    sotto("data", "prepare", "table", table, "--out", tmp_path / "s")
    soundfile.write(table.parent / "ann" / "ann001.flac", [0.1] * 16_000, 16_000)
    assert (
        "has changed since" in sotto("data", "export", tmp_path / "s", "ann/ann001", "--out", tmp_path / "a.wav").error
    )


@pytest.mark.parametrize("name", ["tokens.npy", "token_offsets.npy", "speaker_offsets.npy"])
def test_a_store_with_a_cut_file_does_not_open(sotto, make_store, tmp_path, name):
    store = make_store({"a": 3})
    content = (store.path / name).read_bytes()
    for damaged in (b"", content[: len(content) // 2], content[:-1]):
        (store.path / name).write_bytes(damaged)
        assert "Prepare the store again" in sotto("data", "inspect", store.path).error


def test_preparing_again_says_that_nothing_was_done(sotto, make_table, tmp_path):
    words = ["data", "prepare", "table", make_table({"ann": 2}), "--out", tmp_path / "s", "--workers", 1]
    sotto(*words)
    assert "nothing was done" in sotto(*words).stderr
    assert "would not be overwritten" in sotto(*words, "--dry-run").stderr
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "not a text file" in sotto("data", "stats", tmp_path / "s", "--speakers", tmp_path / "binary").error
    assert "holds lists" in sotto("data", "split", tmp_path / "s", "--where", "paths=x", "--out", tmp_path / "x").error
    assert sotto("data", "stats", tmp_path / "s", "--figure", tmp_path).code == 1
    assert "does not end in .png" in sotto("data", "stats", tmp_path / "s", "--figure", tmp_path / "binary").error
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in sotto("lm", "build", tmp_path / "pipe", "--out", tmp_path / "lm.arpa").error
