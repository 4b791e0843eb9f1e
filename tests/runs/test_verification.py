"""What `verify` binds to a ledger: every model, the configuration, the mechanism, and at least one checkpoint."""

import json
import shutil
from hashlib import sha256

import pytest

from ledgers import append_line, charged, checkpoint, mechanism, opened, other_model
from sottovoce.errors import PrivacyError
from sottovoce.privacy.ledger import LEDGER_FILE
from sottovoce.runs.verification import verified_account, verify


@pytest.fixture
def run(tmp_path):
    checkpoint(tmp_path, 4, charged(tmp_path))
    assert verify(tmp_path).checkpoints == 1
    return tmp_path


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_another_model_is_found(run):
    other_model(run / "checkpoints" / "00000004")
    with pytest.raises(PrivacyError, match=r"is not the model that .* names after 4 steps"):
        verify(run)


def test_a_run_without_checkpoints_is_not_verified(tmp_path):
    charged(tmp_path)
    with pytest.raises(PrivacyError, match="has no checkpoint"):
        verify(tmp_path)


def test_another_configuration_is_found(run):
    path = run / "config.json"
    config = json.loads(path.read_text())["config"]
    config["privacy"]["sigma_dp"] = 5.0
    edit(path, config=config)
    with pytest.raises(PrivacyError, match=r"is not the configuration that .* names"):
        verify(run)
    with pytest.raises(PrivacyError, match=r"is not the configuration that .* names"):
        verified_account(run)


def test_places_and_hardware_are_no_part_of_it(run):
    path = run / "config.json"
    config = json.loads(path.read_text())["config"]
    config["data"]["train"] = {"store": "/elsewhere", "speakers": None}
    config["hardware"]["device"] = "cuda"
    config["privacy"]["ledger"] = "/elsewhere"
    edit(path, config=config)
    assert verify(run).releases == 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sensitivity", 0.5),
        ("divisor", 40.0),
        ("z", 4.0),
        ("clip_norm", 0.001),
        ("parameters", 10),
        ("noise", "secure"),
        ("cap", None),
        ("truncation_delta", 0.0),
    ],
)
def test_a_header_that_the_configuration_does_not_give_is_found(tmp_path, key, value):
    """A forged chain whose header claims a better mechanism than the one that config.json describes."""
    mech = mechanism(cap=60)
    ledger = charged(tmp_path / "true", mech=mech)
    checkpoint(tmp_path / "true", 4, ledger)
    first, *others = (json.loads(line) for line in (tmp_path / "true" / LEDGER_FILE).read_text().splitlines())
    forged = tmp_path / "forged"
    checkpoint(forged, 4, opened(forged, mech))
    header = {**first, key: value}
    if key in ("sensitivity", "divisor"):  # so that the header agrees with itself
        header["z"] = mech.privacy.sigma_dp * header["divisor"] / header["sensitivity"]
    (forged / LEDGER_FILE).write_text(json.dumps(header, ensure_ascii=False) + "\n")
    for line in others:
        append_line(forged, {name: one for name, one in line.items() if name != "previous"})
    lines = (forged / LEDGER_FILE).read_bytes().splitlines()
    mark = {"lines": len(lines), "head": sha256(lines[-1]).hexdigest()}
    edit(forged / "checkpoints" / "00000004" / "checkpoint.json", ledger=mark)
    with pytest.raises(PrivacyError, match=r"the header says|the configuration and model give|claims epsilon"):
        verify(forged)


def test_links_to_something_else_are_found(run):
    checkpoint_folder = run / "checkpoints" / "00000004"
    (run / "last").symlink_to(checkpoint_folder.relative_to(run))
    assert verify(run).releases == 4
    (run / "best").mkdir()
    shutil.copy(checkpoint_folder / "model.safetensors", run / "best")
    with pytest.raises(PrivacyError, match="best is not one of the run's checkpoints"):
        verify(run)


def test_another_state_of_the_optimizer_is_found(run):
    (run / "checkpoints" / "00000004" / "state.safetensors").write_bytes(b"another")
    with pytest.raises(PrivacyError, match="is not the state of the optimizer that"):
        verify(run)


def test_a_guarantee_before_the_first_release_is_one(tmp_path):
    checkpoint(tmp_path, 0, opened(tmp_path))
    found = verify(tmp_path)
    assert (found.guaranteed, found.epsilon) == (True, None)
