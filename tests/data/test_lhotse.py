"""Manifests written by Lhotse itself."""

import gzip
import json
import warnings

import numpy as np
import pytest
import soundfile

from conftest import voice, write_audio
from sottovoce.data.corpora import Lhotse, LhotseCuts
from sottovoce.data.extract import load_audio
from sottovoce.data.manifest import build_manifest
from sottovoce.errors import DataError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lhotse = pytest.importorskip("lhotse", reason="needs Lhotse to write its manifests")


@pytest.fixture
def manifests(tmp_path):
    """A whole recording, a long one with two segments, and a stereo one with a speaker on each channel."""
    write_audio(tmp_path / "one.flac", 2.0, seed=1)
    write_audio(tmp_path / "long.flac", 9.0, seed=2)
    stereo = np.stack([voice(2, 3, 8000), voice(2, 4, 8000)], axis=1)
    soundfile.write(tmp_path / "call.wav", stereo, 8000)
    recordings = [lhotse.Recording.from_file(tmp_path / name) for name in ("one.flac", "long.flac", "call.wav")]
    segment = lhotse.SupervisionSegment
    supervisions = [
        segment("u1", "one", 0, 2.0, speaker="ann", text="Hello there", gender="f", custom={"room": "hall"}),
        segment("u2", "long", 1.0, 2.5, speaker="bob", text="The first part"),
        segment("u3", "long", 5.25, 3.0, speaker="cat", text="The second part"),
        segment("u4", "call", 0.5, 1.0, channel=0, speaker="dan", text="Yes"),
        segment("u5", "call", 0.5, 1.0, channel=1, speaker="eve", text="No"),
        segment("u6", "one", 0, 2.0, speaker=None, text="No speaker"),
        segment("u7", "one", 0, 2.0, speaker="ann", text=None),
        segment("u8", "gone", 0, 2.0, speaker="ann", text="No recording"),
    ]
    lhotse.RecordingSet.from_recordings(recordings).to_file(tmp_path / "recordings.jsonl.gz")
    lhotse.SupervisionSet.from_segments(supervisions).to_file(tmp_path / "supervisions.jsonl.gz")
    return tmp_path


def test_every_supervision_is_read_or_listed(manifests):
    spec = Lhotse(recordings=manifests / "recordings.jsonl.gz", supervisions=manifests / "supervisions.jsonl.gz")
    manifest = build_manifest(spec.read())
    assert manifest.table["utterance"].to_pylist() == ["u1", "u2", "u3", "u4", "u5"]
    assert {(one.utterance, str(one.reason)) for one in manifest.rejected} == {
        ("u6", "no speaker"),
        ("u7", "no transcript"),
        ("u8", "missing file"),
    }
    first = manifest.table.to_pylist()[0]
    assert (first["gender"], first["room"], first["start"]) == ("f", "hall", None)


def test_the_audio_is_what_lhotse_itself_loads(manifests):
    recordings = {one.id: one for one in lhotse.RecordingSet.from_file(manifests / "recordings.jsonl.gz")}
    supervisions = {one.id: one for one in lhotse.SupervisionSet.from_file(manifests / "supervisions.jsonl.gz")}
    spec = Lhotse(recordings=manifests / "recordings.jsonl.gz", supervisions=manifests / "supervisions.jsonl.gz")
    manifest = build_manifest(spec.read())
    for row in manifest.table.to_pylist()[:3]:
        segment = supervisions[row["utterance"]]
        theirs = recordings[segment.recording_id].load_audio(
            channels=0, offset=segment.start, duration=segment.duration
        )
        assert np.abs(load_audio(row, manifest.root) - theirs[0]).max() < 1e-6
    calls = {row["speaker"]: load_audio(row, manifest.root) for row in manifest.table.to_pylist()[3:]}
    assert len(calls["dan"]) == len(calls["eve"]) == 16_000
    assert np.abs(calls["dan"] - calls["eve"]).max() > 0.1


def test_plain_json_and_relative_paths(manifests):
    for name in ("recordings", "supervisions"):
        lines = gzip.decompress((manifests / f"{name}.jsonl.gz").read_bytes()).splitlines()
        text = json.dumps([json.loads(line) for line in lines]).replace(f"{manifests}/", "")
        (manifests / f"{name}.json").write_text(text)
    spec = Lhotse(recordings=manifests / "recordings.json", supervisions=manifests / "supervisions.json")
    assert len(build_manifest(spec.read()).table) == 5
    moved = Lhotse(
        recordings=manifests / "recordings.json",
        supervisions=manifests / "supervisions.json",
        audio_root=manifests / "x",
    )
    assert len(build_manifest(moved.read()).table) == 0


def test_nothing_is_executed_or_fetched(tmp_path):
    for kind in ("command", "url"):
        recording = {"id": kind, "sources": [{"type": kind, "channels": [0], "source": "touch /tmp/x"}]}
        recording |= {"sampling_rate": 16000, "num_samples": 16000, "duration": 1.0}
        (tmp_path / "r.jsonl").write_text(json.dumps(recording) + "\n")
        supervision = {"id": "u", "recording_id": kind, "start": 0, "duration": 1, "speaker": "a", "text": "hi"}
        (tmp_path / "s.jsonl").write_text(json.dumps(supervision) + "\n")
        manifest = build_manifest(Lhotse(recordings=tmp_path / "r.jsonl", supervisions=tmp_path / "s.jsonl").read())
        assert f"of type '{kind}', not a file" in manifest.rejected[0].detail


@pytest.mark.parametrize(
    "change",
    [
        {"sources": []},
        {"sources": None},
        {"sources": [{"type": "file"}]},
        {"sampling_rate": 0},
        {"duration": "long"},
        {"transforms": [{"name": "Speed", "kwargs": {"factor": 1.1}}]},
        {"start": float("nan")},
        {"start": -1},
        {"channel": 7},
        {"channel": [0, 1, 2], "sources": []},
    ],
)
def test_odd_manifests_are_listed_not_fatal(tmp_path, change):
    write_audio(tmp_path / "a.wav", 1.0)
    recording = {"id": "r", "sources": [{"type": "file", "channels": [0], "source": "a.wav"}]}
    recording |= {"sampling_rate": 16000, "num_samples": 16000, "duration": 1.0}
    supervision = {"id": "u", "recording_id": "r", "start": 0, "duration": 1, "speaker": "a", "text": "hi"}
    supervision |= {"gender": 1, "custom": [1, 2]}
    for key, value in change.items():
        (recording if key in recording or key == "transforms" else supervision)[key] = value
    if "start" in change:
        supervision["start"] = change["start"]
    (tmp_path / "r.jsonl").write_text(json.dumps(recording) + "\n")
    (tmp_path / "s.jsonl").write_text(json.dumps(supervision) + "\n")
    manifest = build_manifest(Lhotse(recordings=tmp_path / "r.jsonl", supervisions=tmp_path / "s.jsonl").read())
    assert [str(one.reason) for one in manifest.rejected] == ["malformed row"]
    (tmp_path / "s.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match="should contain objects"):
        build_manifest(Lhotse(recordings=tmp_path / "r.jsonl", supervisions=tmp_path / "s.jsonl").read())
    (tmp_path / "s.jsonl").write_bytes(b'{"id": "caf\xe9"}\n')
    with pytest.raises(DataError, match="not a complete Lhotse manifest"):
        build_manifest(Lhotse(recordings=tmp_path / "r.jsonl", supervisions=tmp_path / "s.jsonl").read())


def test_a_cut_manifest_is_one_clear_error(manifests):
    path = manifests / "recordings.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    spec = Lhotse(recordings=path, supervisions=manifests / "supervisions.jsonl.gz")
    with pytest.raises(DataError, match="not a complete Lhotse manifest"):
        build_manifest(spec.read())
    spec = Lhotse(recordings=manifests / "one.flac", supervisions=manifests / "supervisions.jsonl.gz")
    with pytest.raises(DataError, match="is not a JSON manifest"):
        build_manifest(spec.read())


def test_a_list_of_one_channel_is_that_channel_and_other_lists_are_all_or_nothing(tmp_path):
    left, right = voice(1, 1), voice(1, 2)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], axis=1), 16_000, subtype="FLOAT")
    recording = {"id": "r", "sources": [{"type": "file", "channels": [0, 1], "source": "a.wav"}]}
    recording |= {"sampling_rate": 16000, "num_samples": 16000, "duration": 1.0}
    lines = [
        {"id": f"u{number}", "recording_id": "r", "start": 0, "duration": 1, "speaker": "a", "text": "hi", "channel": c}
        for number, c in enumerate([[1], 1, [0, 1], [0, 2]])
    ]
    (tmp_path / "r.jsonl").write_text(json.dumps(recording) + "\n")
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = Lhotse(recordings=tmp_path / "r.jsonl", supervisions=tmp_path / "s.jsonl")
    manifest = build_manifest(spec.read())
    audio = {row["utterance"]: load_audio(row, manifest.root) for row in manifest.table.to_pylist()}
    assert np.allclose(audio["u0"], right)
    assert np.allclose(audio["u1"], right)
    assert np.allclose(audio["u2"], (left + right) / 2, atol=1e-6)
    assert [one.utterance for one in manifest.rejected] == ["u3"]
    (tmp_path / "r.jsonl").write_text(2 * (json.dumps(recording) + "\n"))
    assert len(build_manifest(spec.read()).table) == len(manifest.table)  # said twice, the same
    (tmp_path / "r.jsonl").write_text("\n".join(json.dumps(one) for one in (recording, recording | {"duration": 9})))
    with pytest.raises(DataError, match="has two recordings named 'r'"):
        build_manifest(spec.read())


@pytest.fixture
def cuts(manifests):
    """Cuts of the same recordings: whole, windows with two supervisions, and one with padding."""
    recordings = lhotse.RecordingSet.from_file(manifests / "recordings.jsonl.gz")
    supervisions = lhotse.SupervisionSet.from_file(manifests / "supervisions.jsonl.gz")
    known = lhotse.SupervisionSet.from_segments(one for one in supervisions if one.id != "u8")
    made = list(lhotse.CutSet.from_manifests(recordings=recordings, supervisions=known))
    by_id = {cut.recording.id: cut for cut in made if hasattr(cut, "recording")}
    window = by_id["long"].truncate(offset=0.5, duration=8.0, preserve_id=True)
    mixed = by_id["one"].pad(duration=3.0)
    lhotse.CutSet.from_cuts([by_id["one"], window, mixed, by_id["call"]]).to_file(manifests / "cuts.jsonl.gz")
    return manifests


def test_cuts_give_the_same_utterances_as_supervisions(cuts):
    pair = Lhotse(recordings=cuts / "recordings.jsonl.gz", supervisions=cuts / "supervisions.jsonl.gz")
    expected, found = (build_manifest(spec.read()) for spec in (pair, LhotseCuts(cuts=cuts / "cuts.jsonl.gz")))
    ours, theirs = ({row["utterance"]: row for row in one.table.to_pylist()} for one in (found, expected))
    assert {"u1", "u2", "u3"} <= set(ours)
    for name, row in ours.items():
        assert row["speaker"] == theirs[name]["speaker"]
        np.testing.assert_array_equal(load_audio(row, found.root), load_audio(theirs[name], expected.root))
    mixed = [one for one in found.rejected if "MixedCut" in one.detail]
    assert len(mixed) == 1
    assert "not tracks that are mixed or padded" in mixed[0].detail


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "PaddingCut"}, "PaddingCut"),
        ({"tracks": []}, "tracks"),
        ({"recording": None}, "without a recording"),
        ({"recording": {"id": "r", "sources": 5}}, "recording r"),
        ({"supervisions": []}, "without a supervision"),
        ({"supervisions": 5}, "without a supervision"),
        ({"supervisions": [5]}, "without a supervision"),
        ({"duration": 0.5}, "not inside the cut"),
        ({"start": "soon"}, "could not convert"),
        ({"start": None}, "cut c"),
    ],
)
def test_odd_cuts_are_listed_not_fatal(tmp_path, change, words):
    write_audio(tmp_path / "a.wav", 1.0)
    recording = {"id": "r", "sources": [{"type": "file", "channels": [0], "source": "a.wav"}]}
    recording |= {"sampling_rate": 16000, "num_samples": 16000, "duration": 1.0}
    supervision = {"id": "u", "recording_id": "r", "start": 0, "duration": 1, "speaker": "a", "text": "hi"}
    cut = {"id": "c", "start": 0, "duration": 1.0, "channel": 0, "recording": recording, "type": "MonoCut"}
    cut |= {"supervisions": [supervision]} | change
    (tmp_path / "c.jsonl").write_text(json.dumps(cut) + "\n")
    (rejected,) = build_manifest(LhotseCuts(cuts=tmp_path / "c.jsonl").read()).rejected
    assert str(rejected.reason) == "malformed row"
    assert words in rejected.detail


def test_the_command_for_cuts(cuts, sotto):
    words = ("--out", cuts / "s", "--workers", 1, "--max-rejected", 1, "--json")
    assert sotto("data", "prepare", "lhotse-cuts", cuts / "cuts.jsonl.gz", *words).document["utterances"] >= 3
