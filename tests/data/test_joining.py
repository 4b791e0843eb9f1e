from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.data.joining import Joining, join_entries
from sottovoce.data.manifest import Entry, Rejection
from sottovoce.errors import ConfigError


def entries(counts):
    return [
        Entry(f"{speaker}{number}", speaker, f"word{number}", "en", (f"{speaker}{number}.wav",), extra={"age": "30"})
        for speaker, count in counts.items()
        for number in range(count)
    ]


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 60), min_size=1),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(0, 9),
)
def test_every_utterance_is_used_once_or_listed(counts, least, extra, seed):
    joining = Joining(least=least, most=least + extra, seed=seed)
    results = list(join_entries(entries(counts), joining))
    joined = [result for result in results if isinstance(result, Entry)]
    left_over = [result.utterance for result in results if isinstance(result, Rejection)]
    used = [name for entry in joined for name in entry.parts]
    assert sorted(used + left_over) == sorted(entry.utterance for entry in entries(counts))
    for entry in joined:
        assert least <= len(entry.paths) <= least + extra
        assert len(entry.pauses) == len(entry.paths) - 1
        assert all(0.05 <= pause <= 0.25 for pause in entry.pauses)
        assert tuple(path.removesuffix(".wav") for path in entry.paths) == entry.parts
        assert {name[0] for name in entry.parts} == {entry.speaker}
        assert entry.extra["age"] == "30"
    assert all(len([name for name in left_over if name[0] == speaker]) < least for speaker in counts)


def test_every_utterance_is_used_so_many_times_in_other_company():
    results = list(join_entries(entries({"a": 30, "b": 1}), Joining(least=2, most=5, times=4)))
    (left_over,) = [result.utterance for result in results if isinstance(result, Rejection)]
    assert left_over == "b0"
    groups = [result.parts for result in results if isinstance(result, Entry)]
    assert Counter(name for parts in groups for name in parts) == {f"a{number}": 4 for number in range(30)}
    assert len(set(groups)) == len(groups) == len({result.utterance for result in results}) - 1
    once = list(join_entries(entries({"a": 30, "b": 1}), Joining(least=2, most=5)))
    assert [entry.parts for entry in once if isinstance(entry, Entry)] == groups[: len(once) - 1]


def test_the_seed_and_the_speaker_decide_and_nothing_else():
    joining = Joining(least=2, most=5, seed=3)
    alone = list(join_entries(entries({"a": 30}), joining))
    among_others = [e for e in join_entries(reversed(entries({"b": 9, "a": 30})), joining) if e.speaker == "a"]
    assert alone == among_others
    assert alone != list(join_entries(entries({"a": 30}), Joining(least=2, most=5, seed=4)))


@pytest.mark.parametrize("text", ["2", "2:", "5:2", "a:b", "0:3", "1:2:3"])
def test_a_wrong_range_is_refused(text):
    with pytest.raises(ConfigError, match="such as 2:5"):
        Joining.parse(text, 1, 0)


def test_parts_of_recordings_are_not_joined():
    segment = Entry("u", "a", "hi", "en", ("a.wav",), start=1.0, segment_seconds=2.0)
    with pytest.raises(ConfigError, match="Only whole recordings can be joined"):
        list(join_entries([segment, *entries({"a": 3})], Joining(least=2, most=2)))
