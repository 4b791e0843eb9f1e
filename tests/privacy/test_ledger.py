"""A ledger: what it charges, and that whatever is changed in it is found."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ledgers import append_line, charged, checkpoint, header_of, mechanism, opened
from sottovoce.errors import ConfigError, DataError, PrivacyError
from sottovoce.privacy.accounting import Event, Spent, delta_at, pld, rdp
from sottovoce.privacy.claims import FALSE_POSITIVES, claim_at, composed, open_account, statement, true_positives
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger, Mark, read_ledger
from sottovoce.privacy.ledger_lines import RunEnd, Saved
from sottovoce.privacy.privacy_options import Budget
from sottovoce.runs.verification import verify


def test_it_says_what_is_protected_and_charges_every_release(tmp_path):
    ledger = charged(tmp_path)
    header, *lines = map(json.loads, (tmp_path / LEDGER_FILE).read_bytes().splitlines())
    assert header["adjacency"] == "add or remove one user"
    assert header["unit"] == "all audio of one speaker"
    assert (header["z"], header["population"], header["noise"]) == (2.0, 1000, "seeded: a simulation")
    assert [line["release"] for line in lines] == [1, 2, 3, 4]
    assert [line["epsilon"] for line in lines] == [rdp(mechanism().spent(n), 1e-9).epsilon for n in (1, 2, 3, 4)]
    assert all(list(line) == ["previous", "release", "step", "epsilon", "aggregate"] for line in lines)
    content = read_ledger(tmp_path / LEDGER_FILE)
    assert content.header.line() == {key: value for key, value in header.items() if key != "previous"}
    written = [entry.line() for entry in content.entries]
    assert written == [{key: value for key, value in line.items() if key != "previous"} for line in lines]
    checkpoint(tmp_path, 4, ledger)
    found = verify(tmp_path)
    assert (found.lines, found.releases, found.checkpoints) == (6, 4, 1)
    assert found.epsilon == lines[-1]["epsilon"]


def damage(lines: list[bytes], how: str) -> list[bytes]:
    if how == "edited":
        return [*lines[:2], lines[2].replace(b'"step": 1', b'"step": 7'), *lines[3:]]
    if how == "removed":
        return [*lines[:2], *lines[3:]]
    if how == "swapped":
        return [*lines[:2], lines[3], lines[2], *lines[4:]]
    if how == "cut":
        return lines[:-1]
    if how == "header":
        return [lines[0].replace(b'"population": 1000', b'"population": 9999'), *lines[1:]]
    return [*lines, b'{"previous": "x"}']


@pytest.mark.parametrize("how", ["edited", "removed", "swapped", "cut", "header", "added"])
def test_whatever_is_changed_is_found(tmp_path, how):
    mark = checkpoint(tmp_path, 4, charged(tmp_path))
    path = tmp_path / LEDGER_FILE
    path.write_bytes(b"\n".join(damage(path.read_bytes().split(b"\n")[:-1], how)) + b"\n")
    with pytest.raises(PrivacyError):
        verify(tmp_path)
    with pytest.raises(PrivacyError):
        opened(tmp_path, saved=mark)


def test_a_chain_that_was_made_anew_does_not_fit_the_checkpoint(tmp_path):
    mark = checkpoint(tmp_path, 4, charged(tmp_path))
    (tmp_path / LEDGER_FILE).unlink()
    ledger = opened(tmp_path)
    for step in range(4):
        ledger.charge(step, 0, "f" * 64)
    ledger.note_saved(Saved(saved=4, model="f" * 64, state="f" * 64))
    with pytest.raises(PrivacyError, match="it was changed"):
        verify(tmp_path)
    with pytest.raises(PrivacyError, match="not the ledger that the last checkpoint was saved with"):
        opened(tmp_path, saved=mark)
    (tmp_path / LEDGER_FILE).unlink()
    with pytest.raises(PrivacyError, match="is missing, but a checkpoint names 6 lines"):
        opened(tmp_path, saved=mark)


def test_a_step_that_was_not_charged_and_an_epsilon_too_small_are_found(tmp_path):
    checkpoint(tmp_path / "a", 5, charged(tmp_path / "a"))
    with pytest.raises(PrivacyError, match="step 4 was not charged"):
        verify(tmp_path / "a")
    charged(tmp_path / "b", 1)
    append_line(tmp_path / "b", {"release": 2, "step": 1, "epsilon": 0.001, "aggregate": "0" * 64})
    with pytest.raises(PrivacyError, match="release 2 claims epsilon"):
        verify(tmp_path / "b")


def test_the_end_of_a_run_is_checked(tmp_path):
    ledger = charged(tmp_path)
    spent = {"releases": 4, "epsilon_rdp": ledger.epsilon, "epsilon_pld": None}
    (tmp_path / "result.json").write_text(json.dumps({"steps": 4, **spent}))
    with pytest.raises(PrivacyError, match="a line was cut off"):
        verify(tmp_path)
    ledger.note(RunEnd(finished=4, **spent))
    checkpoint(tmp_path, 4, ledger)
    assert verify(tmp_path).releases == 4
    for wrong, message in (({"releases": 3}, "it says 3 releases"), ({"epsilon_rdp": 0.1}, "it says epsilon_rdp 0.1")):
        (tmp_path / "result.json").write_text(json.dumps({"steps": 4, **spent, **wrong}))
        with pytest.raises(PrivacyError, match=message):
            verify(tmp_path)
    (tmp_path / "result.json").unlink()
    ledger.note(RunEnd(**{"finished": 4, **spent, "epsilon_pld": 0.01}))
    with pytest.raises(PrivacyError, match="it says epsilon_pld"):
        verify(tmp_path)


@pytest.mark.parametrize(
    ("z", "sampling_prob"),
    [
        *((z, 1.0) for z in (0.1, 0.2, 0.26, 0.3, 0.35, 0.4, 0.6, 2.0)),
        *(pytest.param(z, 0.5, marks=pytest.mark.slow) for z in (0.1, 0.26, 0.4, 2.0)),
    ],
)
def test_the_best_bound_on_an_attacker_is_found_without_the_whole_curve(z, sampling_prob):
    spent = Spent({Event(z, sampling_prob): 4}, 1e-3)
    for rate in FALSE_POSITIVES:
        highest = math.log(1 / rate)
        epsilons = [highest * place / 400 for place in range(401)]
        bounds = [math.exp(epsilon) * rate + delta_at(spent, epsilon) for epsilon in epsilons]
        whole = min(1.0, min(1.0, *bounds) * math.exp(spent.extra))
        assert true_positives(spent, rate) == pytest.approx(whole, abs=1e-12)


def test_the_statement_says_where_delta_is_too_large(tmp_path):
    charged(tmp_path / "a")
    assert "Caution" not in statement(open_account(tmp_path / "a"))
    mech = mechanism()
    large = replace(mech, privacy=mech.privacy.model_copy(update={"target_delta": 1e-3}))
    charged(tmp_path / "b", 1, large)
    assert "**Caution:** delta 0.001 is not below 1/K = 0.001" in statement(open_account(tmp_path / "b"))


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0])
def test_a_delta_that_is_no_probability_below_one_is_refused(tmp_path, delta):
    spent = mechanism().spent(1)
    for account in (rdp, pld):
        with pytest.raises(ConfigError, match="target_delta"):
            account(spent, delta)
    line = {"previous": "0" * 64, **header_of(mechanism()).line(), "target_delta": delta}
    (tmp_path / LEDGER_FILE).write_text(json.dumps(line) + "\n")
    with pytest.raises(PrivacyError, match="the header is damaged at target_delta"):
        open_account(tmp_path)


RELEASE = {"release": 5, "step": 4, "epsilon": 99.0, "aggregate": "0" * 64}
END = {"finished": 4, "releases": 4, "epsilon_rdp": 99.0, "epsilon_pld": None}


def without(line: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in line.items() if name != key}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((without(RELEASE, key), f"line 6 is damaged at {key}") for key in ("step", "epsilon", "aggregate")),
        *((without(END, key), f"line 6 is damaged at {key}") for key in ("releases", "epsilon_rdp", "epsilon_pld")),
        *((RELEASE | {key: "4"}, f"line 6 is damaged at {key}") for key in ("release", "step", "epsilon")),
        (RELEASE | {"aggregate": 7}, "line 6 is damaged at aggregate"),
        (RELEASE | {"release": True}, "line 6 is damaged at release"),
        (RELEASE | {"step": -1}, "line 6 is damaged at step"),
        (RELEASE | {"epsilon": float("nan")}, "line 6 does not follow"),
        (RELEASE | {"epsilon": float("inf")}, "line 6 does not follow"),
        (END | {"finished": 4.5}, "line 6 is damaged at finished"),
        ({"now": "code"}, "line 6 is damaged at now"),
        ({"now": {"config": 7}}, "line 6 is damaged at now.config"),
        (without(RELEASE, "release"), "line 6 is of no known kind"),
        (RELEASE | END, "line 6 is of no known kind"),
        ({}, "line 6 is of no known kind"),
    ],
)
def test_a_damaged_line_is_one_error_with_its_number(tmp_path, line, message):
    charged(tmp_path)
    append_line(tmp_path, line)
    append_line(tmp_path, {"now": {"code": "another"}})
    for read in (verify, open_account, opened):
        with pytest.raises(PrivacyError, match=message) as raised:
            read(tmp_path)
        assert "\n" not in str(raised.value)


def test_a_line_that_is_nested_too_deep_is_one_error(tmp_path):
    charged(tmp_path)
    (tmp_path / LEDGER_FILE).write_bytes(b"[" * 200_000 + b"\n")
    with pytest.raises(PrivacyError, match="line 1 does not follow"):
        open_account(tmp_path)


def test_additional_keys_of_a_line_are_ignored_and_covered_by_the_chain(tmp_path):
    checkpoint(tmp_path, 4, charged(tmp_path))
    for line in (RELEASE, {"now": {"code": "another", "place": 7}}, END | {"releases": 5}):
        append_line(tmp_path, {**line, "later": {"version": 2}})
    assert verify(tmp_path).releases == 5
    path = tmp_path / LEDGER_FILE
    path.write_bytes(path.read_bytes().replace(b'{"version": 2}', b'{"version": 3}', 1))
    with pytest.raises(PrivacyError, match="line 8 does not follow"):
        verify(tmp_path)


def test_runs_that_protect_different_things_do_not_compose(tmp_path):
    charged(tmp_path / "a")
    mech = mechanism()
    (tmp_path / "b").mkdir()
    Ledger(tmp_path / "b" / LEDGER_FILE, header_of(mech, "synthetic user"), None)
    with pytest.raises(PrivacyError, match="protect different things"):
        composed([open_account(tmp_path / name) for name in "ab"])


def test_what_a_run_goes_on_with_is_noted(tmp_path):
    charged(tmp_path)
    mech = mechanism()
    path = tmp_path / LEDGER_FILE
    Ledger(path, header_of(mech, "speaker", "another one", "d" * 64), None)
    assert read_ledger(path).changes[-1].line() == {"config": "d" * 64, "seed_model": "another one"}
    assert json.loads(path.read_bytes().splitlines()[-1])["now"] == {"config": "d" * 64, "seed_model": "another one"}
    assert "Later: config dddd" in statement(open_account(tmp_path))
    before = path.read_bytes()
    Ledger(path, header_of(mech, "speaker", "", "d" * 64), None)
    assert path.read_bytes() == before


def test_half_a_line_is_cut_off_and_nothing_else(tmp_path):
    charged(tmp_path)
    whole = (tmp_path / LEDGER_FILE).read_bytes()
    (tmp_path / LEDGER_FILE).write_bytes(whole + b'{"previous": "1234')
    assert opened(tmp_path).releases == 4
    assert (tmp_path / LEDGER_FILE).read_bytes() == whole


def test_what_is_done_again_alike_is_not_charged_again(tmp_path):
    mark = charged(tmp_path, 2).mark
    before = charged_more(tmp_path, mark)
    again = opened(tmp_path, saved=mark)
    assert again.releases == 4
    assert again.charge(2, 0, f"{2:064x}")
    assert again.charge(3, 0, f"{3:064x}")
    assert again.releases == 4
    assert (tmp_path / LEDGER_FILE).read_bytes() == before
    assert again.charge(4, 0, f"{4:064x}")
    assert again.releases == 5


def charged_more(folder: Path, mark: Mark) -> bytes:
    ledger = opened(folder, saved=mark)
    for step in (2, 3):
        ledger.charge(step, 0, f"{step:064x}")
    return (folder / LEDGER_FILE).read_bytes()


def test_noise_is_never_put_on_another_sum(tmp_path):
    mark = charged(tmp_path, 2).mark
    charged_more(tmp_path, mark)
    again = opened(tmp_path, saved=mark)
    assert not again.charge(2, 0, "a" * 64)  # the same noise, another sum: draw anew
    assert again.releases == 4
    assert again.charge(2, 1, "b" * 64)
    assert again.releases == 5
    third = opened(tmp_path, saved=mark)
    assert not third.charge(2, 0, "c" * 64)
    assert not third.charge(2, 1, "d" * 64)
    assert third.charge(2, 2, "e" * 64)
    assert third.releases == 6


def test_secure_noise_that_is_done_again_is_charged_again(tmp_path):
    mech = mechanism("secure")
    ledger = opened(tmp_path, mech)
    ledger.charge(0, 0, "a" * 64)
    again = opened(tmp_path, mech)
    assert again.charge(0, 0, "b" * 64)
    assert again.releases == 2
    assert 0 < mech.sampler_epsilon < 1e-15  # what the sampler costs
    assert again.epsilon == rdp(mech.spent(2).events, 1e-9).epsilon + 2 * mech.sampler_epsilon


def test_another_mechanism_is_refused(tmp_path):
    charged(tmp_path)
    for other, key in (
        (mechanism(clip_norm=0.02), "clip_norm"),
        (mechanism(sigma_dp=0.2), "sigma_dp"),
        (mechanism(population=2000), "population"),
        (mechanism(sampling="everyone"), "cohort_size"),
        (mechanism("secure"), "noise"),
    ):
        with pytest.raises(PrivacyError, match=f"begun with {key}="):
            opened(tmp_path, other)


def test_no_release_is_made_beyond_the_budget(tmp_path):
    free = [rdp(mechanism().spent(n), 1e-9).epsilon for n in range(5)]
    ledger = opened(tmp_path, mechanism(budget=Budget(epsilon=(free[3] + free[4]) / 2)))
    for step in range(3):
        assert ledger.may_release(step)
        ledger.charge(step, 0, f"{step:064x}")
    assert not ledger.may_release(3)
    assert ledger.may_release(2)
    with pytest.raises(PrivacyError, match="would spend more than privacy"):
        ledger.charge(3, 0, "a" * 64)
    with pytest.raises(PrivacyError, match="There is no epsilon"):
        opened(tmp_path / "none", mechanism(sigma_dp=0.0, budget=Budget(epsilon=1.0)))


def test_runs_are_claimed_composed_and_explained(tmp_path):
    charged(tmp_path / "a", 3)
    charged(tmp_path / "b", 5, mechanism(sigma_dp=0.2))
    accounts = [open_account(tmp_path / name) for name in "ab"]
    assert composed(accounts) == mechanism().spent(3) + mechanism(sigma_dp=0.2).spent(5)
    assert composed([accounts[0], accounts[0]]) == mechanism().spent(3)
    (event,) = claim_at(accounts[0], 2000, 100_000).spent.events
    assert (event.z, event.sampling_prob) == (pytest.approx(200.0), 0.02)
    text = statement(accounts[0])
    for part in ("add or remove one user", "all audio of one speaker", "This was a simulation", "z = 2", "seed model"):
        assert part in text
    rates = [true_positives(mechanism().spent(3), rate) for rate in (0.001, 0.01, 0.1)]
    assert 0.001 < rates[0] < rates[1] < rates[2] < 1
    with pytest.raises(DataError, match="Give the folder of a federated run"):
        open_account(tmp_path / "nothing")


def test_the_attackers_rates_are_those_of_the_gaussian_test(tmp_path):
    # Without sampling, one release is a test of N(0, 1) against N(1/z, 1): the Neyman-Pearson curve is known.
    from scipy import stats

    mech = mechanism(sampling="everyone", sigma_dp=0.002)
    for rate in (0.001, 0.01, 0.1):
        best = stats.norm.sf(stats.norm.isf(rate) - 1 / mech.z)
        assert true_positives(mech.spent(1), rate) == pytest.approx(best, rel=1e-3)


def test_a_run_without_a_guarantee_has_a_ledger_that_says_so(tmp_path):
    checkpoint(tmp_path, 2, charged(tmp_path, 2, mechanism(sigma_dp=0.0)))
    assert verify(tmp_path).epsilon is None
    account = open_account(tmp_path)
    assert "no privacy guarantee: there is no noise" in statement(account)
    with pytest.raises(PrivacyError, match="has no epsilon: none: there is no noise"):
        _ = account.spent


def test_a_release_that_stands_there_twice_is_found_and_a_checkpoint_is_named_once(tmp_path):
    ledger = charged(tmp_path, 2)
    mark = checkpoint(tmp_path, 2, ledger)
    assert checkpoint(tmp_path, 2, ledger) == mark  # the same checkpoint, saved again
    assert len(read_ledger(tmp_path / LEDGER_FILE).entries) == 3
    append_line(tmp_path, {"release": 3, "step": 1, "epsilon": 99.0, "aggregate": f"{1:064x}"})
    with pytest.raises(PrivacyError, match="release 3 is missing, or stands there twice"):
        verify(tmp_path)


def test_a_seed_models_releases_count_once_beside_its_own_run(tmp_path):
    charged(tmp_path / "seed", 2)
    earlier = (read_ledger(tmp_path / "seed" / LEDGER_FILE).as_earlier(),)
    mech = mechanism(sigma_dp=0.2)
    (tmp_path / "next").mkdir()
    Ledger(tmp_path / "next" / LEDGER_FILE, header_of(mech, earlier=earlier), None).charge(0, 0, "a" * 64)
    seed, following = (open_account(tmp_path / name) for name in ("seed", "next"))
    assert composed([seed, following]) == composed([following]) == following.spent
