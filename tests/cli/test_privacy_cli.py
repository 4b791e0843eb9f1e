"""sotto privacy, as a privacy engineer uses it."""

import pytest

from ledgers import charged, checkpoint

SIZES = ("--sigma-dp", "3e-6", "--cohort-size", "204800", "--population", "69506000")


def test_epsilon(sotto):
    document = sotto(
        "privacy", "epsilon", *SIZES, "--central-steps", "2034", "--target-delta", "1e-9", "--json"
    ).document
    assert document["z"] == pytest.approx(0.6144)
    assert document["sampling_prob"] == pytest.approx(204_800 / 69_506_000)
    assert document["rdp"] == {"epsilon": pytest.approx(7.2228, abs=1e-3), "order": 4.0}
    assert document["pld"] == {"epsilon": pytest.approx(6.294, abs=0.01)}
    assert document["rdp_at_paper_orders"]["order"] == 4
    refused = sotto("privacy", "epsilon", "--sigma-dp", "1e-9", "--cohort-size", "900000", "--population", "1000000",
                    "--central-steps", "4000", "--json").document["pld"]  # fmt: skip
    assert refused["epsilon"] is None
    assert "grid would have" in refused["reason"]
    assert "7.223 (order 4)" in sotto("privacy", "epsilon", *SIZES, "--central-steps", "2034").stdout
    assert sotto("privacy", "epsilon", *SIZES, "--central-steps", "0", "--json").document["rdp"]["epsilon"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("epsilon", *SIZES, "--central-steps", "2034", "--target-delta", "2"), "0 < target_delta=2 < 1"),
        (
            ("epsilon", *SIZES[:4], "--population", "100", "--central-steps", "1"),
            "population=100",
        ),
        (("epsilon", "--sigma-dp", "0", *SIZES[2:], "--central-steps", "1"), "without noise there is no epsilon"),
        (("plan", "--epsilon", "10"), "4 are missing"),
        (("verify", "nowhere"), "Give the folder of a federated run"),
        (("explain", "nowhere"), "Give the folder of a federated run"),
        (
            ("plan", *SIZES, "--central-steps", "9", "--accounting", "rdp", "--plot", "nowhere/p.png"),
            "nowhere/p.png cannot be written",
        ),
    ],
)
def test_bad_input_is_one_line(sotto, words, message):
    outcome = sotto("privacy", *words)
    assert outcome.code == 1
    assert message in outcome.stderr
    assert outcome.error


def test_a_delta_that_is_not_below_one_user_in_all_is_said(sotto):
    sizes = ("--sigma-dp", "1", "--cohort-size", "2", "--population", "100", "--central-steps", "1")
    for words in (("epsilon", *sizes), ("plan", *sizes, "--accounting", "rdp")):
        refused = sotto("privacy", *words, "--target-delta", "0.01", "--json")
        assert refused.code == 1
        assert "delta 0.01 is not below 1/K = 0.01" in refused.stderr
        assert "--accept large_delta" in refused.stderr
        outcome = sotto("privacy", *words, "--target-delta", "0.01", "--accept", "large_delta", "--json")
        assert outcome.code == 0
        assert "Caution: delta 0.01 is not below 1/K = 0.01" in outcome.stderr
        assert "hardly below 1/K" in sotto("privacy", *words, "--target-delta", "0.0099", "--json").stderr
        assert "Caution" not in sotto("privacy", *words, "--target-delta", "0.006", "--json").stderr
        outcome = sotto("privacy", *words, "--target-delta", "1")
        assert outcome.code == 1
        assert "0 < target_delta=1 < 1" in outcome.stderr


def test_an_epsilon_that_says_nothing_is_refused(sotto):
    sizes = ("--sigma-dp", "0.05", "--cohort-size", "1", "--population", "10000000000", "--central-steps", "5")
    outcome = sotto("privacy", "epsilon", *sizes)
    assert outcome.code == 1
    assert "delta 1e-09 is not below 1/K = 1e-10" in outcome.stderr
    assert sotto("privacy", "epsilon", *sizes, "--accept", "large_delta", "--json").document["pld"]["epsilon"] == 0


def test_a_claim_and_a_composition_refuse_a_delta_that_is_too_large(sotto, tmp_path):
    run = tmp_path / "run"
    checkpoint(run, 4, charged(run))  # K = 1000
    claim = ("claim", run, "--cohort-size", 20, "--population", 2000)
    for words, too_large, below in ((claim, 5e-4, 2e-4), (("compose", run, run), 1e-3, 4e-4)):
        assert "not below 1/K" in sotto("privacy", *words, "--target-delta", too_large).error
        outcome = sotto("privacy", *words, "--target-delta", too_large, "--accept", "large_delta", "--json")
        assert f"Caution: delta {too_large:g} is not below 1/K = {too_large:g}" in outcome.stderr
        assert "Caution" not in sotto("privacy", *words, "--target-delta", below, "--json").stderr


def test_plan_draws(sotto, tmp_path):
    words = ("--cohort-size", "204800", "--population", "70000000", "--sigma-dp", "3e-6", "--central-steps", "2000")
    outcome = sotto("privacy", "plan", *words, "--accounting", "rdp", "--plot", str(tmp_path / "plan.png"), "--json")
    assert outcome.document["solved_for"] == "epsilon"
    assert outcome.document["epsilon"] == pytest.approx(7.1, abs=0.2)
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_verified_claimed_composed_and_explained(sotto, tmp_path):
    run = tmp_path / "run"
    checkpoint(run, 4, charged(run))
    assert sotto("privacy", "verify", str(run), "--json").document["releases"] == 4
    assert "the chain holds, and 1 checkpoint agrees" in sotto("privacy", "verify", str(run)).stderr
    claim = sotto("privacy", "claim", str(run), "--cohort-size", "2000", "--population", "100000", "--json").document
    assert claim["z"] == pytest.approx(200.0)
    assert claim["simulated"]["cohort_size"] == 20
    assert "not at the sizes of the claim" in claim["assumed"]
    both = sotto("privacy", "compose", str(run), str(run), "--json").document  # each release counts once
    assert both["rdp"]["epsilon"] == sotto("privacy", "compose", str(run), "--json").document["rdp"]["epsilon"]
    outcome = sotto("privacy", "explain", str(run), "--out", str(tmp_path / "statement.md"))
    assert outcome.code == 0
    assert "# Privacy statement of run" in (tmp_path / "statement.md").read_text()
    explained = sotto("privacy", "explain", str(run), "--json").document
    assert explained["statement"] == (tmp_path / "statement.md").read_text()
    assert explained["guaranteed"]
    assert explained["releases"] == 4
    assert explained["rdp"] == sotto("privacy", "compose", str(run), "--json").document["rdp"]
    assert not explained["protects_nobody"]
    (run / "ledger.jsonl").write_text((run / "ledger.jsonl").read_text().replace('"step": 2', '"step": 3'))
    claim = ("claim", str(run), "--cohort-size", "2000", "--population", "100000")
    for words in (("verify", str(run)), ("explain", str(run)), claim, ("compose", str(run))):
        outcome = sotto("privacy", *words)
        assert outcome.code == 1
        assert "does not follow from the one before it" in outcome.stderr
        assert outcome.stdout == ""


@pytest.mark.slow
def test_the_papers_tables(sotto):
    rows = sotto("privacy", "table", "--json").document
    assert len(rows) == 88
    assert sum(row["agrees"] for row in rows) == 81
    assert all(row["pld"]["epsilon"] is None or row["pld"]["epsilon"] <= row["rdp"]["epsilon"] for row in rows)


def test_correlated_noise_is_planned_and_accounted_for_by_its_bands(sotto):
    sizes = ("--population", "20000", "--cohort-size", "1000", "--central-steps", "60", "--target-delta", "1e-5")
    plan = ("privacy", "plan", *sizes, "--epsilon", "8", "--noise", "correlated", "--bands", "4", "--accounting", "rdp")
    one, four = sotto(*plan, "--json").document["plans"]
    assert (one["bands"], four["bands"]) == (1, 4)
    assert 0.7 < four["sigma_dp_of_independent_noise"] / one["sigma_dp_of_independent_noise"] < 0.8
    asked = ("--sigma-dp", repr(four["sigma_dp"]), "--noise", "correlated", "--bands", "4")
    found = sotto("privacy", "epsilon", *sizes, *asked, "--json").document
    assert found["rdp"]["epsilon"] == pytest.approx(8, rel=1e-3)
    assert found["participation_prob"] == pytest.approx(0.2)
    assert "independent" in sotto(*plan).stdout
