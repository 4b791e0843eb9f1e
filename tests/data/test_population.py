import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from sottovoce.data.population import Population, _dealt
from sottovoce.data.splits import split_by_column, split_by_count, split_by_fraction, split_by_list
from sottovoce.data.statistics import statistics_of
from sottovoce.errors import ConfigError, DataError

names = st.sets(st.text("abcdef0123456789", min_size=1, max_size=8), min_size=2, max_size=60)


@pytest.mark.parametrize(
    ("speakers", "fraction", "first", "rest"),
    [
        (34_753, "0.1", 3_475, 31_278),
        (34_753, "0.05", 1_737, 33_016),
        (6_856, "0.1", 685, 6_171),
        (7_127, "0.1", 712, 6_415),
        (100, "0.29", 29, 71),
        (9, "1/3", 3, 6),
    ],
)
def test_parts_have_the_sizes_of_the_paper(speakers, fraction, first, rest):
    parts = split_by_fraction([str(number) for number in range(speakers)], fraction, seed=0)
    assert (len(parts[0]), len(parts[1])) == (first, rest)


@given(names, st.data())
def test_parts_are_disjoint_whole_and_the_same_for_any_order(speakers, data):
    count, seed = data.draw(st.integers(1, len(speakers) - 1)), data.draw(st.integers(0, 99))
    first, rest = split_by_count(sorted(speakers), count, seed)
    assert (first, rest) == split_by_count(sorted(speakers, reverse=True), count, seed)
    assert set(first) | set(rest) == speakers
    assert not set(first) & set(rest)


def test_a_split_is_the_same_on_every_machine():
    speakers = [f"speaker-{number}" for number in range(10)]
    assert split_by_count(speakers, 3, seed=0)[0] == ["speaker-1", "speaker-6", "speaker-9"]


def test_five_percent_lie_inside_ten():
    speakers = [str(number) for number in range(400)]
    assert set(split_by_fraction(speakers, "0.05", 7)[0]) < set(split_by_fraction(speakers, "0.1", 7)[0])
    assert split_by_fraction(speakers, "0.1", 7) != split_by_fraction(speakers, "0.1", 8)


@pytest.mark.parametrize("fraction", ["0", "1", "-0.1", "2", "ten", "1/0", ""])
def test_an_impossible_fraction_is_refused(fraction):
    with pytest.raises(ConfigError, match="expected a fraction"):
        split_by_fraction(["a", "b", "c"], fraction, 0)


def test_a_fraction_that_leaves_a_part_empty_is_refused():
    with pytest.raises(ConfigError, match="no part may be empty"):
        split_by_fraction(["a", "b", "c"], "0.1", 0)


def test_lists_name_speakers_that_exist():
    assert split_by_list(["a", "b", "c"], ["c", "a"]) == (["a", "c"], ["b"])
    with pytest.raises(DataError, match="'x' of the list is not in the store"):
        split_by_list(["a", "b"], ["x"])
    with pytest.raises(ConfigError, match="no part may be empty"):
        split_by_list(["a", "b"], ["a", "b"])


def test_users_are_speakers_with_all_their_utterances(make_store):
    store = make_store({"a": 3, "b": 1, "c": 4})
    everyone = Population.of(store)
    assert [everyone.rows_of(user).tolist() for user in range(3)] == [[0, 1, 2], [3], [4, 5, 6, 7]]
    some = Population.of(store, ["c", "a"])
    assert [some.rows_of(user).tolist() for user in range(2)] == [[0, 1, 2], [4, 5, 6, 7]]
    assert some.utterances_by_user().tolist() == [3, 4]
    seconds = store.index(["seconds"])["seconds"].to_numpy()
    assert some.seconds_by_user().tolist() == pytest.approx([seconds[:3].sum(), seconds[4:].sum()])
    assert everyone.seconds_by_user().sum() == pytest.approx(store.info.seconds)
    with pytest.raises(DataError, match="'x' and 1 more not in"):
        Population.of(store, ["x", "y", "a"])
    with pytest.raises(DataError, match="names a speaker twice"):
        Population.of(store, ["a", "a"])


def test_a_population_splits_into_two_disjoint_populations(make_store):
    people = Population.of(make_store(dict.fromkeys("abcdefghij", 2)))
    assert people.speakers == list("abcdefghij")
    part, rest = people.split("0.3", seed=5)
    assert (part.speakers, rest.speakers) == split_by_fraction(people.speakers, "0.3", 5)
    assert sorted(part.speakers + rest.speakers) == people.speakers
    assert not set(part.all_rows()) & set(rest.all_rows())
    assert people.split(0.3, seed=5)[0].hash == part.hash
    again, _ = part.split("1/3", seed=5)
    assert set(again.speakers) < set(part.speakers)
    with pytest.raises(DataError, match="are not speakers"):
        people.iid(0).split()


def test_the_iid_control_has_the_same_utterances_and_other_users(make_store):
    store = make_store({"a": 20, "b": 1, "c": 9})
    people = Population.of(store, ["a", "b"])
    mixed = people.iid(seed=0)
    assert len(mixed) == len(people)
    assert sorted(mixed.all_rows().tolist()) == sorted(people.all_rows().tolist())
    assert np.concatenate([mixed.rows_of(user) for user in range(len(mixed))]).tolist() == mixed.all_rows().tolist()
    assert mixed.utterances_by_user().tolist() != people.utterances_by_user().tolist()
    assert people.unit == "speaker"
    assert mixed.unit == "synthetic user"
    assert people.iid(0).all_rows().tolist() == mixed.all_rows().tolist()
    assert people.iid(1).all_rows().tolist() != mixed.all_rows().tolist()
    assert statistics_of("x", mixed).hours == pytest.approx(statistics_of("x", people).hours)


def test_a_column_splits_speakers_only_if_it_never_cuts_one_in_two(make_store, tmp_path):
    store = make_store({"a": 2, "b": 2})
    with pytest.raises(DataError, match="no column 'sex'"):
        split_by_column(store, "sex", "f")
    with pytest.raises(DataError, match="2 of 2 speakers have mood=calm"):
        split_by_column(store, "mood", "calm")
    with pytest.raises(DataError, match="with and without text=hello number a"):
        split_by_column(store, "text", "hello number a")
    assert split_by_column(store, "speaker", "a") == (["a"], ["b"])


def test_statistics_agree_with_arithmetic(make_store):
    store = make_store({"a": 3, "b": 1})
    population = Population.of(store)
    row = statistics_of("mine", population)
    minutes = population.seconds_by_user() / 60
    assert row.speakers == 2
    assert row.utterances == 4
    assert row.hours == pytest.approx(minutes.sum() / 60)
    assert row.minutes_mean == pytest.approx((minutes[0] + minutes[1]) / 2)
    assert row.minutes_std == pytest.approx(abs(minutes[0] - minutes[1]) / 2)
    assert (row.minutes_min, row.minutes_max) == (min(minutes), max(minutes))


def test_iid_users_get_utterances_uniformly_and_independently(make_store):
    people = Population.of(make_store({"a": 60, "b": 20, "c": 20}, seconds=0.9))
    counts = np.array([people.iid(seed).utterances_by_user() for seed in range(400)])
    assert counts.sum(axis=1).tolist() == [100] * 400
    assert np.abs(counts.mean(axis=0) - 100 / 3).max() < 1.2
    assert counts.var(axis=0) == pytest.approx(100 * (1 / 3) * (2 / 3), rel=0.25)  # binomial, not dealt in turn


def test_whoever_else_is_in_the_store_moves_nobodys_utterances_in_the_iid_control(make_store):
    store = make_store({"a": 5, "b": 6, "c": 4}, seconds=0.9)
    names = store.index(["utterance"])["utterance"].to_pylist()

    def users_of(population):
        mixed = population.iid(7)
        return {names[row]: user for user in range(len(mixed)) for row in mixed.rows_of(user)}

    dealt = users_of(Population.of(store))
    assert len(dealt) == 15
    left, right = Population.of(store, ["a", "b"]), Population.of(store, ["b", "c"])
    own = [name for name in names if name.startswith("b")]
    assert [users_of(left)[name] for name in own] == [users_of(right)[name] for name in own]


def test_the_users_of_the_iid_control_are_equally_likely():
    for users in (3, 7, 100):
        drawn = np.bincount([_dealt(0, "speaker", f"{number}", users) for number in range(20_000)], minlength=users)
        assert len(drawn) == users
        assert chisquare(drawn).pvalue > 0.001
