import math

import numpy as np
import pytest
from scipy import integrate

from sottovoce.model.flat import make_partition
from sottovoce.privacy.accounting import ORDERS, Accountant
from sottovoce.privacy.mechanism import Mechanism
from sottovoce.privacy.options import Participation, Privacy

PARTITION = make_partition(["w"], [10], "tensor")


def accountant(sigma_dp, **participation):
    privacy = Privacy(clip_norm=0.01, clipping="global", sigma_dp=sigma_dp)
    return Accountant(Mechanism(privacy, Participation(**participation), PARTITION))


def test_the_papers_row_with_a_dense_grid_of_orders():
    # S = 204,800 of K = 69,506,000, sigma 3e-6, T = 2034: the paper prints 7.2 on a coarse grid.
    spent = accountant(3e-6, population=69_506_000, cohort_size=204_800).epsilon(2034)
    assert spent == pytest.approx(7.2, rel=0.03)
    assert spent <= 7.25


def test_the_moments_agree_with_quadrature():
    found = accountant(0.1, population=1000, cohort_size=20)
    z, q = found.mechanism.z, found.mechanism.sampling_prob
    assert (z, q) == (pytest.approx(2.0), 0.02)

    def moment(order):
        def inside(x):
            ratio = (1 - q) + q * math.exp((2 * x - 1) / (2 * z**2))
            return math.exp(-(x**2) / (2 * z**2)) / (z * math.sqrt(2 * math.pi)) * ratio**order

        return math.log(integrate.quad(inside, -30, 60, limit=400)[0]) / (order - 1)

    for order in (1.1, 2.0, 5.5, 20.0):
        place = int(np.argmin(abs(ORDERS - order)))
        assert found._moments[place] == pytest.approx(moment(float(ORDERS[place])), rel=1e-5)


def test_everyone_is_the_gaussian_mechanism():
    spent = accountant(1e-3, population=5000, sampling="everyone").epsilon(10)
    z, delta = 5.0 / math.sqrt(10), 1e-9
    orders = np.linspace(1.001, 200, 200_000)
    best = np.min(orders / (2 * z**2) + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))
    assert spent == pytest.approx(best, rel=1e-2)
    assert spent >= best - 1e-9


def test_more_steps_cost_more_and_no_noise_is_no_claim():
    one = accountant(0.1, population=1000, cohort_size=20)
    spent = [one.epsilon(steps) for steps in (0, 1, 10, 100, 1000)]
    assert spent[0] == 0
    assert spent == sorted(spent)
    privacy = Privacy(clip_norm=0.01, clipping="global")
    assert Accountant(Mechanism(privacy, Participation(population=9, cohort_size=3), PARTITION)).epsilon(3) is None
    fixed = accountant(0.1, population=1000, cohort_size=20, sampling="fixed")
    assert fixed.epsilon(10) > one.epsilon(10)
