"""What identifies a run: options that are newer than the algorithm's version leave keys as they were."""

from sottovoce.bench import plan
from sottovoce.config import parse_setting, resolve


def test_a_newer_option_at_its_neutral_value_is_not_in_the_key(monkeypatch):
    def key(*settings: str) -> str:
        layers = [parse_setting(setting) for setting in settings]
        return plan.run_key("central", resolve("quick", *layers), {}, None)

    monkeypatch.setattr(plan, "_NEWER", {})
    with_all = key()
    blocks, option = resolve("quick").config.model.blocks, "model.blocks"
    monkeypatch.setattr(plan, "_NEWER", {option: blocks})
    assert key() != with_all  # left out
    assert key(f"{option}={blocks + 1}") != key()  # and counted at any other value
    monkeypatch.setattr(plan, "_NEWER", {option: blocks + 7, "model.none": 1, "seed": -1})
    assert key() == with_all


def test_neutral_values_are_removed_at_any_depth_and_nothing_else():
    tree = {"a": {"b": {"c": None, "d": 1}}, "e": 0}
    assert plan.without_neutral(tree, {"a.b.c": None}) == {"a": {"b": {"d": 1}}, "e": 0}
    assert plan.without_neutral(tree, {"a.b.d": 2, "e.f": 1, "x.y": 0}) == tree
    assert tree == {"a": {"b": {"c": None, "d": 1}}, "e": 0}
