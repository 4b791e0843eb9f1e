"""One ledger for all runs on the same users: copies, several processes, kills, and ledgers that are missing or old."""

import json
import multiprocessing
import os
import shutil
import stat

import pytest

from ledgers import append_line, charged, checkpoint, header_of, mechanism
from sottovoce.errors import DataError, PrivacyError
from sottovoce.privacy.accounting import rdp
from sottovoce.privacy.charges import Charges
from sottovoce.privacy.ledger import LEDGER_FILE, Ledger, read_ledger
from sottovoce.privacy.population_ledger import WITNESS_FILE, PopulationLedger, RunCharges, place_beside
from sottovoce.privacy.privacy_options import Budget


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


def population(store):
    return PopulationLedger(place_beside(store), store)


def ledger(folder, store, mech=None, saved=None, users="abc", budget=None, **header):
    """Open the ledger of a run on the users of a store."""
    folder.mkdir(exist_ok=True)
    mech, shared = mech or mechanism(), population(store)
    named = header_of(mech, population_ledger=shared.id, **header)
    return Ledger(folder / LEDGER_FILE, named, saved, budget=budget, population=shared, users=users)


def charge(opened, *steps, aggregate="{:064x}"):
    for step in steps:
        assert opened.charge(step, 0, aggregate.format(step))


def total(store):
    runs = list(population(store).runs.values())
    return rdp(sum((run.spent for run in runs[1:]), runs[0].spent), 1e-9).epsilon


def test_all_runs_on_the_same_users_add_up(store, tmp_path):
    charge(ledger(tmp_path / "a", store), 0, 1, 2)
    charge(ledger(tmp_path / "b", store, mechanism(sigma_dp=0.2)), 0, 1)
    charge(ledger(tmp_path / "c", store, config_hash="1" * 64, users="ab"), 0)
    assert total(store) == rdp(mechanism().spent(4) + mechanism(sigma_dp=0.2).spent(2), 1e-9).epsilon
    first, second, third = population(store).runs.values()
    assert first.users == second.users != third.users  # by the same salt
    assert [run.place for run in (first, second, third)] == [str(tmp_path / name) for name in "abc"]


def test_a_copy_of_a_run_shares_what_was_released_before(store, tmp_path):
    charge(ledger(tmp_path / "run", store, mechanism("secure")), 0, 1)
    shutil.copytree(tmp_path / "run", tmp_path / "fork")
    charge(ledger(tmp_path / "run", store, mechanism("secure")), 2, aggregate="a{:063x}")
    charge(ledger(tmp_path / "fork", store, mechanism("secure")), 2, 3, aggregate="b{:063x}")
    (run,) = population(store).runs.values()
    assert len(run.charges) == 5
    assert total(store) == rdp(mechanism("secure").spent(5), 1e-9).epsilon


def test_a_copy_with_seeded_noise_never_puts_it_on_another_sum(store, tmp_path):
    charge(ledger(tmp_path / "run", store), 0)
    shutil.copytree(tmp_path / "run", tmp_path / "fork")
    charge(ledger(tmp_path / "run", store), 1)
    fork = ledger(tmp_path / "fork", store)
    assert not fork.charge(1, 0, "f" * 64)  # the noise of step 1 was used on the sum of the other copy
    assert fork.charge(1, 1, "e" * 64)
    same = ledger(tmp_path / "fork", store)
    charge(same, 1)  # the other copy's own sum: nothing is charged for it again
    (run,) = population(store).runs.values()
    assert run.charges.repetitions == {1: 1, 2: 1}


def test_the_budget_is_of_all_runs(store, tmp_path):
    spent = [rdp(mechanism().spent(n), 1e-9).epsilon for n in range(6)]
    budget = Budget(epsilon=(spent[4] + spent[5]) / 2)
    charge(ledger(tmp_path / "a", store), 0, 1, 2)
    second = ledger(tmp_path / "b", store, budget=budget, config_hash="1" * 64)
    charge(second, 0)
    assert not second.may_release(1)
    with pytest.raises(PrivacyError, match="would spend more than privacy"):
        charge(second, 1)
    assert second.releases == 1
    third = ledger(tmp_path / "c", store, budget=budget, config_hash="2" * 64)
    assert not third.may_release(0)


def test_a_budget_needs_runs_that_add_up(store, tmp_path):
    charge(ledger(tmp_path / "void", store, mechanism(sigma_dp=0.0)), 0, 1)
    budget = Budget(epsilon=10.0)
    ledger(tmp_path / "free", store)
    with pytest.raises(PrivacyError, match="holds runs that do not add up with this one") as refused:
        ledger(tmp_path / "strict", store, budget=budget)
    assert "privacy.accept=[unprotected_runs]" in str(refused.value)
    stated = mechanism(accept=("unprotected_runs",))
    charge(ledger(tmp_path / "stated", store, stated, budget=budget), 0)


def test_a_missing_or_older_ledger_is_an_error(store, tmp_path):
    charge(ledger(tmp_path / "a", store), 0)
    place = place_beside(store)
    shutil.copytree(place, tmp_path / "backup")
    charge(ledger(tmp_path / "a", store), 1)
    shutil.move(place, tmp_path / "newest")
    with pytest.raises(PrivacyError, match="is missing, but"):
        population(store)
    shutil.copytree(tmp_path / "backup", place)
    with pytest.raises(PrivacyError, match="is older than what"):
        population(store)
    (store / WITNESS_FILE).unlink()  # the run remembers, too
    with pytest.raises(PrivacyError, match="lacks 1 releases of"):
        ledger(tmp_path / "a", store)
    shutil.rmtree(place)
    (store / WITNESS_FILE).unlink()
    with pytest.raises(PrivacyError, match="begun with population_ledger="):
        ledger(tmp_path / "a", store)


def test_a_ledger_that_was_copied_is_refused_and_one_that_was_moved_is_not(store, tmp_path):
    charge(ledger(tmp_path / "a", store), 0)
    for name in ("store", "store.privacy"):
        shutil.copytree(tmp_path / name, tmp_path / "copy" / name)
    with pytest.raises(PrivacyError, match="is a copy of the ledger in"):
        population(tmp_path / "copy" / "store")
    shared = PopulationLedger(place_beside(store), tmp_path / "copy" / "store")  # both stores charge the first one
    assert shared.id == population(store).id
    PopulationLedger(tmp_path / "other", None)
    with pytest.raises(PrivacyError, match="belongs to the ledger in"):
        PopulationLedger(tmp_path / "other", store)
    (tmp_path / "moved").mkdir()
    for name in ("store", "store.privacy"):
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    assert len(population(tmp_path / "moved" / "store").runs) == 1


def test_half_a_line_is_cut_off_and_a_changed_one_is_found(store, tmp_path):
    charge(ledger(tmp_path / "a", store), 0, 1)
    path = place_beside(store) / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"previous": "12')
    charge(ledger(tmp_path / "a", store), 2)
    assert path.read_bytes().startswith(whole)
    assert len(population(store).runs) == 1
    path.write_bytes(path.read_bytes().replace(b'"step": 1', b'"step": 9'))
    with pytest.raises(PrivacyError, match="line 5 does not follow"):
        population(store)


def test_only_the_owner_can_read_it_and_it_names_nobody(store, tmp_path):
    before = os.umask(0)
    try:
        charge(ledger(tmp_path / "a", store, users=["Ada Lovelace"]), 0)
    finally:
        os.umask(before)
    place = place_beside(store)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for path in (*place.iterdir(), store / WITNESS_FILE):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert b"Lovelace" not in path.read_bytes()
    header = json.loads((tmp_path / "a" / LEDGER_FILE).read_text().splitlines()[0])
    (run,) = population(store).runs.values()
    assert run.users not in json.dumps(header)  # the run's ledger is public: nothing in it depends on who the users are


def test_a_damaged_witness_or_a_missing_salt_is_one_line(store, tmp_path):
    charge(ledger(tmp_path / "a", store), 0)
    salt = place_beside(store) / "salt"
    kept = salt.read_bytes()
    salt.unlink()
    with pytest.raises(PrivacyError, match="salt is missing or damaged"):
        population(store)
    salt.write_bytes(kept)
    (store / WITNESS_FILE).write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        population(store)


def _charge_many(folder, store, name, start):
    start.wait()  # so that they begin the ledger at the same moment
    charge(ledger(folder / name, store, config_hash=name * 64), *range(20))


def test_several_processes_begin_and_charge_at_once(store, tmp_path):
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(3)
    processes = [fork.Process(target=_charge_many, args=(tmp_path, store, name, start)) for name in "123"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    runs = population(store).runs.values()
    assert [len(run.charges) for run in runs] == [20, 20, 20]


def test_the_command_adds_up_and_charges_runs_made_elsewhere(store, tmp_path, sotto):
    missing = sotto("privacy", "population", store)
    assert "no federated run has used" in missing.error
    assert not place_beside(store).exists()
    charge(ledger(tmp_path / "a", store), 0, 1)
    charge(ledger(tmp_path / "void", store, mechanism(sigma_dp=0.0)), 0)
    document = sotto("privacy", "population", store, "--json").document
    assert [(run["guarantee"], run["releases"]) for run in document["runs"]] == [("simulation", 2), ("none", 0)]
    (together,) = document["totals"]
    assert together["epsilon_rdp"] == rdp(mechanism().spent(2), 1e-9).epsilon
    assert document["unprotected"] == 1
    elsewhere = charged(tmp_path / "elsewhere", 3, mechanism(sigma_dp=0.3))
    checkpoint(tmp_path / "elsewhere", 3, elsewhere)
    for _ in range(2):  # the second time it is there
        more = sotto("privacy", "population", store, "--charge", tmp_path / "elsewhere", "--json").document
        assert more["totals"][0]["releases"] == 5
    shown = sotto("privacy", "population", store)
    assert "5 releases of 2 runs" in shown.stderr
    assert "1 run had no guarantee" in shown.stderr
    assert "is not below 1/K" in sotto("privacy", "population", store, "--target-delta", "0.5").error


def test_a_store_never_gets_two_ledgers(store, tmp_path):
    first, second = (PopulationLedger(tmp_path / name, None) for name in ("one", "two"))
    PopulationLedger(first.place, store)  # the store remembers it before the first release
    with pytest.raises(PrivacyError, match="belongs to the ledger in"):
        PopulationLedger(second.place, store)
    late = PopulationLedger.__new__(PopulationLedger)  # a process that opened it before the store remembered another
    late.__dict__.update(vars(second), _store=store)
    header = header_of(mechanism(), population_ledger=second.id)
    with pytest.raises(PrivacyError, match="belongs to the ledger in"):
        late.charge(RunCharges("0" * 64, "", "", header), [(0, "a")])
    (tmp_path / "link").symlink_to(store)
    assert place_beside(tmp_path / "link") == place_beside(store)


def test_a_ledger_that_was_emptied_is_not_begun_anew(store, tmp_path):
    charge(ledger(tmp_path / "a", store), 0)
    place = place_beside(store)
    salt = (place / "salt").read_bytes()
    (place / "ledger.jsonl").write_bytes(b"")
    with pytest.raises(PrivacyError, match="is missing, but"):
        population(store)
    (store / WITNESS_FILE).unlink()
    with pytest.raises(PrivacyError, match="holds something, but no ledger"):
        population(store)
    assert (place / "salt").read_bytes() == salt
    opened = ledger(tmp_path / "b", tmp_path, config_hash="1" * 64)
    (place_beside(tmp_path) / "ledger.jsonl").unlink()
    with pytest.raises(PrivacyError, match="was removed while it was in use"):
        opened.charge(0, 0, "a")


def test_no_other_folder_is_taken_over(store, tmp_path):
    other = tmp_path / "other"
    other.mkdir(mode=0o755)
    (other / "file").write_text("mine")
    with pytest.raises(PrivacyError, match="holds something, but no ledger"):
        PopulationLedger(other, store)
    assert stat.S_IMODE(other.stat().st_mode) == 0o755
    assert not (store / WITNESS_FILE).exists()


def test_secure_runs_with_equal_settings_are_two_and_copies_are_one(store, tmp_path):
    for name in "ab":
        charge(ledger(tmp_path / name, store, mechanism("secure")), 0, aggregate=name + "{:063x}")
    assert len(population(store).runs) == 2
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    charge(ledger(tmp_path / "copy", store, mechanism("secure")), 1)
    assert len(population(store).runs) == 2


def test_a_run_is_not_charged_without_those_that_its_seed_model_comes_from(store, tmp_path):
    first = read_ledger(charged(tmp_path / "first", 2)._path)
    header = header_of(mechanism(sigma_dp=0.2), earlier=(first.as_earlier(),))
    shared = population(store)
    with pytest.raises(PrivacyError, match="lacks releases of a run that the seed model comes from"):
        shared.adopt("1" * 64, header, Charges([(0, "a")]), tmp_path)
    shared.adopt(first.run, first.header, first.charges, tmp_path / "first")
    shared.adopt("1" * 64, header, Charges([(0, "a")]), tmp_path)
    assert total(store) == rdp(mechanism().spent(2) + mechanism(sigma_dp=0.2).spent(1), 1e-9).epsilon


def test_the_hash_of_users_does_not_depend_on_their_order(store):
    shared = population(store)
    assert shared.users_hash(["b", "a"]) == shared.users_hash(["a", "b"]) != shared.users_hash(["a"])


def test_a_ledger_that_shrinks_while_it_is_in_use_is_an_error(store, tmp_path):
    opened = ledger(tmp_path / "a", store)
    charge(opened, 0, 1)
    path = place_beside(store) / "ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(PrivacyError, match="has become shorter while it was in use"):
        opened.charge(2, 0, "a" * 64)


def test_a_charge_of_a_run_that_never_began_is_an_error(store, tmp_path):
    charge(ledger(tmp_path / "a", store), 0)
    append_line(place_beside(store), {"charge": "f" * 64, "step": 0, "aggregate": "a"})
    with pytest.raises(PrivacyError, match="charges a run that has not begun"):
        population(store)
