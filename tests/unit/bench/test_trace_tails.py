"""Laws are found again where they were drawn, and refused where they were not."""

import math

import numpy as np
import pytest

from bench.trace_tails import KS_5_PERCENT, LAWS, Sample, ks, pareto_tail, tails

RNG = np.random.default_rng(5)


def drawn(law, n=4000):
    return {
        "lognormal": lambda: RNG.lognormal(4.39, 1.55, n),
        "weibull": lambda: 301.8 * RNG.weibull(1.347, n),
    }[law]()


def of(found, law):
    return next(row for row in found["laws"] if row["law"] == law)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("law", "wanted"),
    [("lognormal", {"mu": 4.39, "sigma": 1.55}), ("weibull", {"k": 1.347, "scale": 301.8})],
)
def test_a_law_is_found_again(law, wanted, whole):
    values = drawn(law)
    found = tails(np.maximum(1, np.round(values)) if whole else values)
    assert found["best"] == law
    assert found["holds"]
    for name, value in wanted.items():
        assert of(found, law)[name] == pytest.approx(value, rel=0.05)


def test_whole_numbers_are_rounded_ones_not_a_bad_fit():
    """Most of these are 1 to 5: a continuous law would stand off by half a step."""
    calls = np.maximum(1, np.floor(RNG.lognormal(0.9, 0.8, 3000) + 0.5))
    found = tails(calls)
    assert of(found, "lognormal")["mu"] == pytest.approx(0.9, abs=0.06)
    assert found["best"] == "lognormal"
    assert of(found, "lognormal")["ks"] < KS_5_PERCENT / math.sqrt(3000)


def test_what_follows_neither_law_is_refused():
    two_humps = np.concatenate([RNG.normal(100, 3, 500), RNG.normal(1000, 3, 500)])
    found = tails(two_humps)
    assert not found["holds"]
    assert min(row["ks"] for row in found["laws"]) > 0.2


def test_the_exponent_of_a_pareto_tail():
    values = 10.0 * (1.0 + RNG.pareto(1.5, 6000))  # density ~ x**-2.5
    tail = pareto_tail(values)
    assert tail["alpha"] == pytest.approx(2.5, rel=0.07)
    assert tail["ks"] < 0.03
    assert pareto_tail(values[:60]) is None


def test_the_distance_by_hand():
    """Three values under a law that is uniform enough to check: shares 1/3, 2/3, 1 against F."""
    law = LAWS[1]
    x = np.array([1.0, 2.0, 4.5])
    f = 1 - np.exp(-x / 2.0)
    by_hand = max(*np.abs(f - [1 / 3, 2 / 3, 1]), *np.abs(f - [0, 1 / 3, 2 / 3]))
    assert ks(law, Sample.of(x), (1.0, 2.0)) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("values", "note"),
    [(np.ones(20), "too few"), (np.full(90, 7.0), "no spread to fit: 7"), (np.zeros(90), "no spread")],
)
def test_what_cannot_be_fitted_says_why(values, note):
    found = tails(values)
    assert found["laws"] == []
    assert note in found["note"]


def test_zeros_of_a_continuous_quantity_are_counted_and_left_out():
    values = np.concatenate([np.zeros(100), RNG.lognormal(0, 1, 400)])
    found = tails(values)
    assert found["zeros"] == 100
    assert of(found, "lognormal")["sigma"] == pytest.approx(1.0, abs=0.1)
