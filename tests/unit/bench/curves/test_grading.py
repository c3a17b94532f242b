import math

import pytest

from bench.curves.grading import NOT_TESTABLE, better, near, of_all, verdict
from bench.stats import Estimate


@pytest.mark.parametrize(
    ("low", "value", "high", "word"),
    [
        (1.7, 1.9, 2.1, "reproduced"),
        (1.2, 1.4, 1.61, "reproduced"),  # overlaps 2 / 1.25
        (1.42, 1.5, 1.58, "partly"),  # half of ln 2 is ln 1.414
        (1.3, 1.38, 1.45, "not reproduced"),  # less than half the log ratio
        (0.9, 1.0, 1.1, "not reproduced"),
        (3.0, 3.5, 4.0, "partly"),  # more than claimed is not the claim
        (1.8, 1.8, math.inf, "reproduced"),  # a bound: > 1.8
        (0.0, 0.5, 0.5, "not reproduced"),
    ],
)
def test_ratio_of_two(low, value, high, word):
    found = Estimate(value, low, high)
    assert verdict(found, 2.0, 2.0, 8) == word
    assert verdict(found, 2.0, 2.0, 7) == f"exploratory: {word}"


def test_a_range_is_met_anywhere_in_it():
    assert verdict(Estimate(3.0, 2.9, 3.1), 2.0, 5.0, 8) == "reproduced"
    assert verdict(Estimate(1.5, 1.4, 1.55), 2.0, 5.0, 8) == "not reproduced"


def test_nothing_run_is_not_testable():
    assert verdict(Estimate(math.nan), 2.0, 2.0, 8) == NOT_TESTABLE
    assert better(Estimate(math.nan), 8) == NOT_TESTABLE


def test_a_sign_needs_the_interval_above_one():
    assert better(Estimate(1.2, 1.1, 1.3), 8) == "reproduced"
    assert better(Estimate(1.2, 0.99, 1.4), 8) == "not reproduced"
    assert better(Estimate(1.2), 1) == "exploratory: reproduced"


@pytest.mark.parametrize(
    ("low", "high", "claimed", "word"),
    [
        (1.2, math.inf, 15.0, NOT_TESTABLE),  # a bound does not reach for a claim
        (13.0, math.inf, 15.0, "reproduced"),
        (40.0, math.inf, 15.0, "partly"),
        (0.0, 30.0, 2.0, NOT_TESTABLE),
        (0.0, 1.1, 4.0, "not reproduced"),
    ],
)
def test_bounds(low, high, claimed, word):
    value = low if high == math.inf else high
    assert verdict(Estimate(value, low, high), claimed, claimed, 8) == word


def test_a_range_claimed_of_all_holds_in_all():
    assert of_all(["reproduced", "reproduced"]) == "reproduced"
    assert of_all(["reproduced", "not reproduced"]) == "partly"
    assert of_all(["not reproduced", NOT_TESTABLE]) == "not reproduced"
    assert of_all([NOT_TESTABLE]) == NOT_TESTABLE
    assert of_all(["exploratory: reproduced", "reproduced"]) == "exploratory: reproduced"


def test_a_rate_is_near_or_not():
    assert near(Estimate(0.22, 0.2, 0.24), 0.2, 0.2, 8) == "reproduced"
    assert near(Estimate(0.42, 0.40, 0.45), 0.2, 0.2, 8) == "not reproduced"
    assert near(Estimate(0.01, 0.009, 0.011), 0.2, 0.2, 8) == "not reproduced"
