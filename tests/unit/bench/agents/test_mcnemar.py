"""Exact McNemar and Wilson: against scipy, by hand, and at the ends."""

import math

import pytest
from scipy.stats import binomtest

from bench.agents.mcnemar import exact_p, mcnemar, wilson


@pytest.mark.parametrize(("b", "c"), [(0, 1), (1, 5), (3, 3), (10, 2), (40, 25), (0, 12), (300, 250)])
def test_exact_p_is_the_binomial_tests(b, c):
    assert exact_p(b, c) == pytest.approx(binomtest(b, b + c, 0.5).pvalue, rel=1e-9)


def test_by_hand():
    assert exact_p(0, 0) == 1.0
    assert exact_p(0, 5) == 2 / 32
    assert exact_p(1, 5) == 2 * (1 + 6) / 64


def test_pairs_are_what_both_sides_have():
    base = {(1, "a"): True, (1, "b"): True, (1, "c"): False, (2, "a"): False, (9, "x"): True}
    new = {(1, "a"): True, (1, "b"): False, (1, "c"): True, (2, "a"): False}
    found = mcnemar(base, new)
    assert (found.both, found.neither, found.base_only, found.new_only, found.alone) == (
        1, 1, ((1, "b"),), ((1, "c"),), 1,
    )  # fmt: skip
    plain = found.as_json()
    assert (plain["pairs"], plain["base"], plain["new"], plain["p"]) == (4, 2, 2, 1.0)
    assert plain["base_only"] == [[1, "b"]]


@pytest.mark.parametrize(("x", "n"), [(0, 24), (24, 24), (1, 24), (17, 24), (500, 1000), (3, 3)])
def test_wilsons_interval_is_scipys(x, n):
    found, theirs = wilson(x, n), binomtest(x, n).proportion_ci(0.95, "wilson")
    assert found.value == x / n
    assert found.low == pytest.approx(theirs.low, abs=1e-12)
    assert found.high == pytest.approx(theirs.high, abs=1e-12)


def test_of_nothing_there_is_no_share():
    assert math.isnan(wilson(0, 0).value)
    assert wilson(0, 0).note == "no programs"
