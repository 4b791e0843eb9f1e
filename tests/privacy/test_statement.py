"""The privacy statement says what is true: nothing that nobody can know, and everything that is not covered."""

from ledgers import charged, mechanism
from sottovoce.privacy.claims import open_account, statement
from sottovoce.privacy.run_files import PRIVATE_FILES


def text_of(folder, **participation):
    charged(folder, mech=mechanism(**participation))
    return statement(open_account(folder))


def test_the_population_is_what_the_operator_states(tmp_path):
    text = text_of(tmp_path)
    assert "- Population: K = 1,000, stated by the operator as a public number.\n" in text
    assert "counted" not in text


def test_weights_come_with_their_bound(tmp_path):
    assert "; weights: one.\n" in text_of(tmp_path / "one")
    weighted = text_of(tmp_path / "seconds", weight="seconds", weight_bound=30, weight_total=9000)
    assert "; weights: seconds, at most 30 for one user.\n" in weighted


def test_every_private_file_is_named_as_not_covered(tmp_path):
    covered, _, not_covered = text_of(tmp_path).partition("## What is not covered")
    assert len(PRIVATE_FILES) > 10
    for file in PRIVATE_FILES:
        assert f"{file.name} ({file.content})" in not_covered
        assert file.content not in covered
    for words in ("What training prints", "The list of speakers", "dev and test sets"):
        assert words in not_covered
