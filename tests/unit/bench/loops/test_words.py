import math
from itertools import pairwise

import numpy as np
import pytest

from bench.curves.crossing import ratio
from bench.loops.words import NOT_TESTABLE, PARTLY, SAME_SIGN, leans, mean_of, of_ratio, of_sign, whole
from bench.stats import Estimate

R, N = "reproduced", "not reproduced"


@pytest.mark.parametrize(
    ("stated", "low", "value", "high", "word"),
    [
        (2.65, 2.0, 2.4, 2.9, R),
        (1.18, 0.99, 1.0, 1.01, N),  # nothing is no small effect
        (1.24, 0.99, 1.0, 1.01, N),
        (1.18, 0.80, 0.85, 0.95, N),  # nor is the opposite one
        (1.18, 1.04, 1.05, 1.06, SAME_SIGN),
        (1.18, 1.16, 1.18, 1.20, SAME_SIGN),
        (1.26, 1.20, 1.26, 1.30, R),
        (0.85, 0.80, 0.90, 0.95, SAME_SIGN),
        (0.50, 0.45, 0.55, 0.70, R),
        (0.50, 0.99, 1.0, 1.01, N),
        (3.50, 1.90, 2.0, 2.10, PARTLY),
        (2.65, 0.95, 1.8, 3.41, PARTLY),  # half the effect, and the one-sided bound is above 1
        (2.65, 0.41, 1.0, 2.90, NOT_TESTABLE),  # holds 1 and 2.65: says nothing of either
        (1.12, 0.98, 1.04, 1.13, NOT_TESTABLE),
        (1.00, 0.90, 1.0, 1.10, R),  # no effect is stated
    ],
)  # fmt: skip
def test_a_ratio_needs_its_sign_and_its_size(stated, low, value, high, word):
    assert of_ratio(Estimate(value, low, high), stated, stated, 8) == word


def test_a_stated_range_is_on_one_side_or_holds_one():
    assert of_ratio(Estimate(1.0, 0.99, 1.01), 1.12, 1.16, 8) == N
    assert of_ratio(Estimate(1.1, 1.05, 1.15), 1.12, 1.16, 8) == SAME_SIGN
    assert of_ratio(Estimate(1.0, 0.99, 1.01), 0.9, 1.1, 8) == R
    assert of_ratio(Estimate(1.14, 1.13, 1.15), 1.12, 1.16, 8) == R  # inside, whatever the tolerance
    assert of_ratio(Estimate(3.0, 2.8, 3.2), 1.17, 3.31, 8) == R
    assert of_ratio(Estimate(1.05, 1.02, 1.1), 1.17, 3.31, 8) == SAME_SIGN


def test_one_seed_leans_nowhere():
    assert not leans(Estimate(3.0), 1, 1)
    assert of_sign([Estimate(3.0)], 1, 1) == N


def test_a_one_sided_bound_is_nearer_than_the_intervals_end():
    values = {s: math.exp(0.1 + 0.13 * (-1) ** s) for s in range(8)}
    got = ratio(values, dict.fromkeys(values, 1.0))
    assert got.low < 1.0
    assert leans(got, 1, 8)
    assert not leans(got, -1, 8)
    assert of_sign([got], 1, 8) == PARTLY
    assert of_sign([got], 1, 8, stated=1.3) == N  # less than half of its logarithm


def test_without_an_effect_three_panels_are_seldom_partly():
    rng, partly = np.random.default_rng(1), 0
    for _ in range(400):
        words = []
        for _ in range(3):
            seeds = dict(enumerate(np.exp(rng.normal(0.0, 0.1, 8))))
            words.append(of_sign([ratio(seeds, dict.fromkeys(seeds, 1.0))], 1, 8))
        partly += whole(words, True) != N
    assert partly <= 2  # on the sign of the means alone 7 of 8


def test_a_claim_must_hold_in_each_panel():
    for weaker, stronger in pairwise([N, PARTLY, SAME_SIGN, R]):
        assert whole([stronger, weaker, R], True) == weaker
    assert whole([R, R], True) == R
    assert whole([R, NOT_TESTABLE], True) == PARTLY
    assert whole([R, R], False) == whole([SAME_SIGN], False) == PARTLY
    assert whole([N, NOT_TESTABLE], True) == N
    assert whole([NOT_TESTABLE], True) == NOT_TESTABLE


def test_a_seed_without_a_value_is_not_left_out():
    assert mean_of({1: 1.0, 2: 3.0}).value == 2.0
    got = mean_of({1: 1.0, 2: math.nan, 3: 1.0})
    assert math.isnan(got.value)
    assert "seed 2" in got.note
    assert math.isnan(mean_of({}).value)
