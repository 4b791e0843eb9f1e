"""Price lists: what a row's WER costs by one recipe, interpolated between rows whose epsilons were spent."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from bench_counts import results
from sottovoce.bench.effects import PriceList
from sottovoce.bench.plan import BenchRun
from sottovoce.bench.preset import Size, load_bench
from sottovoce.bench.prices import Amount, price_rows
from sottovoce.bench.result_tables import document, section
from sottovoce.errors import ConfigError
from sottovoce.privacy.epsilons import Epsilons
from sottovoce.privacy.planner import Plan, epsilon_of
from sottovoce.reports.sections.effect_figures import effects_section

CURVE = {"epsilon 16": 0.30, "epsilon 8": 0.35, "epsilon 4": 0.40, "epsilon 2": 0.50, "epsilon 1": 0.60}
PRICED = {"dim": 0.375, "adaptive": 0.35, "correlated": 0.25, "adapters": 0.75}


def less_noise(wers=None):
    """Return the size, and its rows with WERs and with the epsilons that their names or the benchmark say."""
    bench = load_bench("less-noise")
    wers = {**CURVE, **PRICED} if wers is None else wers
    by_seed = {name: wer if isinstance(wer, tuple) else (wer,) * 3 for name, wer in wers.items()}
    shown = results(bench, bench.size("mini"), by_seed)
    return bench.size("mini"), [_with_epsilon(result) for result in shown]


def _with_epsilon(result):
    name = result.row.name
    epsilon = float(name.split()[1]) if name.startswith("epsilon") else 8.0
    return replace(result, runs=[replace(run, epsilon=Epsilons(None, epsilon)) for run in result.runs])


def test_the_interval_of_a_price_is_that_of_the_difference():
    size, shown = less_noise({**CURVE, "dim": (0.35, 0.375, 0.40)})
    (price,) = price_rows(size.prices, shown)
    half = price.better_by.half / 100
    assert half > 0
    wers, epsilons = sorted(CURVE.values()), (16, 8, 4, 2, 1)
    for amount, wer in ((price.epsilon.low, 0.375 + half), (price.epsilon.high, 0.375 - half)):
        assert amount.value == pytest.approx(math.exp(np.interp(wer, wers, np.log(epsilons))), rel=1e-3)
    assert price.epsilon.low.value < price.epsilon.value.value < price.epsilon.high.value
    assert price.users.low.value < price.users.value.value < price.users.high.value


def test_a_price_lies_between_the_rows_of_the_curve():
    size, shown = less_noise()
    prices = {price.row: price for price in price_rows(size.prices, shown)}
    dim = prices["dim"]
    assert dim.reference == "epsilon 8"
    assert dim.better_by.value == pytest.approx(-2.5)
    assert dim.epsilon.value.value == pytest.approx(math.sqrt(8 * 4)), (
        "in the middle of two WERs, on a logarithmic axis"
    )
    assert prices["adaptive"].epsilon.value.value == pytest.approx(8.0)
    assert prices["correlated"].epsilon.value == Amount(pytest.approx(16.0), "above")
    assert prices["correlated"].epsilon.text == "above 16"
    assert prices["adapters"].epsilon.value.beyond == "below"
    for price in prices.values():
        assert price.epsilon.low.value <= price.epsilon.value.value <= price.epsilon.high.value


def test_users_are_those_with_whom_the_noise_spends_the_same_epsilon():
    size, shown = less_noise({**CURVE, "dim": 0.40})
    (price,) = price_rows(size.prices, shown)
    users = round(price.users.value.value)
    config = next(result for result in shown if result.row.name == "epsilon 4").config
    plan = Plan(
        population=users,
        cohort_size=config.participation.cohort_size,
        sigma_dp=config.privacy.sigma_dp,
        central_steps=25,
        epsilon=None,
        target_delta=config.privacy.target_delta,
    )
    assert epsilon_of(plan, "pld") == pytest.approx(8.0, rel=1e-3)
    assert price.population == 40_000
    assert 14_000 < users < 18_000, "half the epsilon with 40,000 users, or two fifths of the users"


def test_there_are_no_prices_without_a_whole_rising_curve():
    size, shown = less_noise({name: wer for name, wer in {**CURVE, **PRICED}.items() if name != "epsilon 2"})
    assert price_rows(size.prices, shown) == []
    size, shown = less_noise({**CURVE, **PRICED, "epsilon 2": 0.39})
    assert price_rows(size.prices, shown) == [], "with more noise it has a lower WER"
    assert price_rows(None, shown) == []


def test_a_curve_is_of_one_recipe_with_noise():
    size, shown = less_noise()
    mixed = PriceList(curve=("epsilon 8", "dim"), rows=("adaptive",))
    with pytest.raises(ConfigError, match="differ in more than"):
        price_rows(mixed, shown)
    free = [replace(result, runs=[replace(run, epsilon=Epsilons()) for run in result.runs]) for result in shown]
    one = [new if new.row.name == "epsilon 2" else old for old, new in zip(shown, free, strict=True)]
    with pytest.raises(ConfigError, match="no epsilon"):
        price_rows(size.prices, one)


def test_a_price_list_names_rows_that_exist_once():
    tree = {"preset": "mini", "rows": [{"name": "a"}, {"name": "b"}]}
    for prices, complaint in (
        ({"curve": ["a", "c"], "rows": ["b"]}, "needs the row 'c'"),
        ({"curve": ["a", "b"], "rows": ["b"]}, "names the row 'b' twice"),
        ({"curve": ["a"], "rows": ["b"]}, "at least 2 items"),
    ):
        with pytest.raises(ValidationError, match=complaint):
            Size.model_validate({**tree, "prices": prices})


def test_tables_pages_and_documents_show_prices(tmp_path):
    size, shown = less_noise()
    run = BenchRun.choose("less-noise", seeds=3, out=tmp_path)
    text = section(run, shown, "sotto bench run less-noise")
    assert "| dim | -2.5 ± " in text
    assert "`epsilon 8`, 40,000 users" in text
    assert [price["row"] for price in document(run, shown)["prices"]] == list(PRICED)
    page = effects_section(size, shown)
    assert any("Price list" in str(element) for element in page.elements)


@pytest.mark.parametrize(
    ("value", "text"), [(5.234, "5.2"), (16.0, "16"), (13_734.0, "14,000"), (0.972, "0.97"), (7.99, "8.0")]
)
def test_amounts_have_two_digits(value, text):
    assert Amount(value).text() == text
