"""Groups by any column: values, ranges of numbers, edges, and speakers without a value."""

import pytest

from sottovoce.errors import ConfigError
from sottovoce.evaluation.grouping import NO_VALUE, EveryValue, Grouping


def test_values_are_groups_in_order():
    assert Grouping("sex").labels(["m", "f", "m"]) == (["m", "f", "m"], ["f", "m"])
    assert Grouping("grade").labels(["10", "9", None]) == (["10", "9", NO_VALUE], ["9", "10", NO_VALUE])
    assert EveryValue("grade").labels(["10", "9", None]) == (["10", "9", "None"], ["10", "9", "None"])


def test_many_numbers_become_ranges_of_about_equal_size():
    ages = [str(age) for age in range(20, 70)]
    names, order = Grouping("age").labels(ages)
    assert order == ["20 to 29", "30 to 39", "40 to 49", "50 to 59", "60 to 69"]
    assert [names.count(name) for name in order] == [10] * 5
    assert names[ages.index("39")] == "30 to 39"
    skewed, ranges = Grouping("seconds").labels([1.0] * 90 + [float(number) for number in range(2, 12)])
    assert (len(skewed), ranges) == (100, ["1", "2 to 11"])


def test_edges_cut_where_they_were_asked_for():
    names, order = Grouping("age", (18, 65)).labels(["17.9", "18", "64", "65", None])
    assert names == ["below 18", "18 to below 65", "18 to below 65", "65 and more", NO_VALUE]
    assert order == ["below 18", "18 to below 65", "65 and more", NO_VALUE]
    assert Grouping("age", (18,)).labels(["5"])[1] == ["below 18"]
    with pytest.raises(ConfigError, match="other values than numbers"):
        Grouping("age", (18,)).labels(["old"])
