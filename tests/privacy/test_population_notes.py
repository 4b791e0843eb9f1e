"""Notes on a store whose number of users is not K, and the rule for an epsilon that protects nobody."""

from ledgers import charged, mechanism
from sottovoce.privacy.claims import open_account, statement
from sottovoce.privacy.epsilons import NOBODY_PROTECTED, PROTECTS_NOBODY, Epsilons
from sottovoce.privacy.population_notes import population_notes
from sottovoce.privacy.privacy_options import Participation


def test_nothing_is_said_where_the_store_has_k_users():
    assert population_notes(Participation(population=68, cohort_size=16), 68) == []


def test_another_number_of_users_is_explained():
    (note,) = population_notes(Participation(population=1000, cohort_size=50), 68)
    assert note == (
        "K = 1,000 is stated (participation.population), and the store has 68 users. The guarantee is computed for K; "
        "the simulation draws each of the 68 with probability q = S/K = 0.05, so about 3.4 per step, and divides their "
        "sum by 50."
    )
    (note,) = population_notes(Participation(population=50, sampling="everyone"), 68)
    assert "takes all 68 in every step, and divides their sum by 50." in note
    (note,) = population_notes(Participation(population=50, cohort_size=8, sampling="fixed"), 68)
    assert "draws 8 of the 68 in every step, and divides their sum by 8." in note


def test_cohorts_that_are_mostly_empty_are_noted():
    _, note = population_notes(Participation(population=1000, cohort_size=2), 68)
    assert note.startswith("Only 0.14 users are expected in a step")


def test_a_hopeless_epsilon_is_called_so(tmp_path):
    assert not Epsilons(None, None).protects_nobody
    assert not Epsilons(2 * PROTECTS_NOBODY, PROTECTS_NOBODY).protects_nobody
    assert Epsilons(2 * PROTECTS_NOBODY, None).protects_nobody
    charged(tmp_path / "good")
    charged(tmp_path / "bad", mech=mechanism(sigma_dp=0.001))
    assert NOBODY_PROTECTED not in statement(open_account(tmp_path / "good"))
    assert NOBODY_PROTECTED in statement(open_account(tmp_path / "bad"))
