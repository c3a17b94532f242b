"""Survival curves: the estimate, its corners, and when to stop on curves one can do by hand."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import CensoredData, ecdf

from systems.retentions.curve import SHAPES, Curve, Known, decaying, kaplan_meier
from vocabulary import GRID, INF

times = st.floats(0.01, 1000.0).map(lambda x: round(x, 2))
samples = st.lists(st.tuples(times, st.booleans()), min_size=1, max_size=40)
rates = st.floats(1e-6, 1e6)


def exponential(n=400, mean=4.0):
    """Quantiles in place of samples: no chance in the tests."""
    return [-mean * math.log(1 - (i + 0.5) / n) for i in range(n)]


def curve_of(durations):
    return kaplan_meier((seconds, True) for seconds in durations)


def cost(curve, rate, age):
    """E[what is paid] if a second of keeping costs ``rate`` and coming back too late 1, step by step."""
    held = sum(
        share * (min(b, age) - min(a, age))
        for a, b, share in zip(curve.ages, [*curve.ages[1:], INF], curve.alive, strict=True)
        if min(a, age) < min(b, age)
    )
    return rate * held + curve.share(age)


def test_the_product_limit_by_hand():
    """Ten threads: returns at 1, 2, 2, 4, 5; seen to be away for longer than 2, 3, 3, 5, 6."""
    returns, censored = (1, 2, 2, 4, 5), (2, 3, 3, 5, 6)
    curve = kaplan_meier([(t, True) for t in returns] + [(t, False) for t in censored])
    assert list(curve.ages) == [0.0, 1.0, 2.0, 4.0, 5.0]
    by_hand = [1.0, 9 / 10, 9 / 10 * 7 / 9, 9 / 10 * 7 / 9 * 3 / 4, 9 / 10 * 7 / 9 * 3 / 4 * 2 / 3]
    assert curve.alive == pytest.approx(by_hand)
    assert [curve.share(age) for age in (0.5, 1.0, 3.9, 100.0)] == pytest.approx(
        [1.0, 0.9, by_hand[2], by_hand[4]]
    )
    assert curve.held(3.0) == pytest.approx(1.0 + 0.9 + by_hand[2])


@given(samples)
@settings(max_examples=60, deadline=None)
def test_the_product_limit_is_scipys(rows):
    curve = kaplan_meier(rows)
    came, stayed = [t for t, back in rows if back], [t for t, back in rows if not back]
    if came:
        theirs = ecdf(CensoredData(uncensored=came, right=stayed)).sf
        ours = [curve.share(t) for t in theirs.quantiles]
        assert ours == pytest.approx(list(theirs.probabilities), abs=1e-9)
    else:
        assert list(curve.ages) == [0.0]


def test_without_censoring_it_is_the_empirical_share():
    curve = curve_of([3.0, 1.0, 2.0, 2.0])
    assert (list(curve.ages), list(curve.alive)) == ([0.0, 1.0, 2.0, 3.0], [1.0, 0.75, 0.25, 0.0])
    assert curve.held(INF) == pytest.approx(2.0)


def test_a_return_at_once_has_a_place_on_the_time_grid():
    curve = kaplan_meier([(0.0, True), (1.0, True)])
    assert curve.ages[1] == GRID
    assert curve.stop(1000.0) == GRID


@given(samples, rates)
@settings(max_examples=60, deadline=None)
def test_where_it_stops_nothing_is_cheaper(rows, rate):
    curve = kaplan_meier(rows)
    least = min(cost(curve, rate, age) for age in curve.ages)
    assert cost(curve, rate, curve.stop(rate)) == pytest.approx(least, rel=1e-9, abs=1e-12)


@given(samples, rates, st.floats(1.0, 100.0))
@settings(max_examples=60, deadline=None)
def test_a_higher_price_never_keeps_longer(rows, rate, factor):
    curve = kaplan_meier(rows)
    assert curve.stop(rate * factor) <= curve.stop(rate)


def test_what_costs_nothing_is_kept_for_ever():
    assert curve_of([1.0]).stop(0.0) == INF


def test_exponential_times_are_kept_for_ever_or_not_at_all():
    """Memoryless: the rate of return is 1 / 4 s whatever the age."""
    curve = curve_of(exponential())
    assert curve.share(curve.stop(1 / 4.4)) < 0.02
    assert curve.share(curve.stop(1 / 3.6)) > 0.98


def test_near_deterministic_times_are_kept_until_just_after_the_mode_or_not_at_all():
    curve = curve_of([2.0 + 0.002 * i for i in range(-50, 51)])
    for rate in (0.01, 0.1, 0.4, 0.49):
        assert 2.05 < curve.stop(rate) <= 2.1
    assert curve.stop(0.51) == 0.0


def test_heavy_tails_are_kept_for_a_short_time_and_then_given_up():
    """Pareto, P(T > t) = (1 + t) ** -1: the rate of return at age t is 1 / (1 + t)."""
    n = 2000
    curve = curve_of([1 / (1 - (i + 0.5) / n) - 1 for i in range(n)])
    for rate in (0.5, 0.25, 0.1):
        assert 1 / (1 + curve.stop(rate)) == pytest.approx(rate, rel=0.1)


def test_worth_is_the_price_at_which_stopping_begins():
    for durations in (exponential(), [2.0 + 0.002 * i for i in range(-50, 51)]):
        curve = curve_of(durations)
        worth = curve.worth(0.0)
        assert curve.stop(worth * 0.99) > 0.0
        assert curve.share(curve.stop(worth * 1.25)) > 0.9


def test_worth_rises_falls_or_stays_with_age():
    steady = curve_of(exponential())
    assert [steady.worth(age) for age in (0.0, 1.0, 4.0)] == pytest.approx([0.25, 0.25, 0.25], rel=0.12)
    sharp = curve_of([2.0 + 0.002 * i for i in range(-50, 51)])
    assert sharp.worth(0.0) < sharp.worth(1.0) < sharp.worth(1.8)
    assert sharp.worth(1.0) == pytest.approx(1.0, rel=0.1)
    heavy = curve_of([1 / (1 - (i + 0.5) / 2000) - 1 for i in range(2000)])
    assert heavy.worth(0.0) > heavy.worth(1.0) > heavy.worth(9.0) > 0.0
    assert heavy.worth(heavy.ages[-1]) == 0.0


def test_worth_between_events_is_no_matter_of_the_next_one_alone():
    """Right before an event the rate of return is not infinite: many are looked at."""
    rng = random.Random(1)
    curve = curve_of([rng.expovariate(0.25) for _ in range(512)])
    found = sorted(curve.worth(rng.uniform(0.0, 8.0)) for _ in range(500))
    assert 0.2 < found[len(found) // 2] < 0.4
    assert found[-5] < 1.0


def test_an_oracle_keeps_until_the_return_if_that_pays():
    known = Known(5.0)
    assert known.stop(0.199) == 5.0
    assert known.stop(0.201) == 0.0
    assert known.worth(4.0) == pytest.approx(1.0)
    assert known.worth(6.0) > 1e6


@pytest.mark.parametrize("shape", SHAPES)
def test_decay_starts_at_the_half_life_and_falls_as_it_says(shape):
    curve = decaying(2.0, shape, points=4096)
    assert curve.share(GRID) == 1.0
    rate = math.log(2) / 2.0
    at = {age: curve.worth(age) / rate for age in (0.0, 2.0, 4.0)}
    expected = {"exponential": (1.0, 0.5, 0.25), "linear": (1.0, 0.75, 0.5), "none": (1.0, 1.0, 1.0)}[shape]
    assert list(at.values()) == pytest.approx(list(expected), rel=0.1)


@pytest.mark.parametrize(
    ("ages", "alive"),
    [((), ()), ((0.0, 1.0), (1.0,)), ((1.0,), (1.0,)), ((0.0,), (0.5,)), ((0.0, 1.0, 1.0), (1.0, 0.5, 0.2)),
     ((0.0, 1.0), (1.0, 1.1)), ((0.0, 1.0), (1.0, -0.1))],
)  # fmt: skip
def test_what_is_no_survival_curve_is_refused(ages, alive):
    with pytest.raises(ValueError, match="survival curve"):
        Curve(ages, alive)
