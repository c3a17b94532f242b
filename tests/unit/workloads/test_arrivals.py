import math
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from vocabulary import on_grid
from workloads.arrivals import parse, poisson, ramp_time, recorded, times, weibull_shape
from workloads.base import ProgramSpec, WorkloadError
from workloads.keys import key_of
from workloads.random_streams import stream

KINDS = ["poisson", "gamma:cv=3", "gamma:cv=0.5", "weibull:cv=2", "weibull:cv=0.4", "ramp:to=2.5,over=200"]


def gaps(found):
    return [b - a for a, b in pairwise([0.0, *found])]


def test_poisson_rate_and_grid():
    found = poisson(2.0, 5000, 1)
    assert found == sorted(found)
    assert all(t == on_grid(t) for t in found)
    assert fmean(gaps(found)) == pytest.approx(0.5, rel=0.05)


def test_another_rate_stretches_the_same_times():
    assert poisson(1.0, 50, 3) == pytest.approx([2 * t for t in poisson(2.0, 50, 3)], abs=1e-8)
    assert poisson(1.0, 50, 3) != poisson(1.0, 50, 4)
    assert poisson(1.0, 50, 3)[:20] == poisson(1.0, 20, 3)


def test_poisson_is_what_it_always_was():
    """Every stored result hangs on these times."""
    now, source, expected = 0.0, stream(key_of("arrivals", 5), "poisson"), []
    for _ in range(100):
        now += source.exponential(1.0)
        expected.append(on_grid(now / 0.75))
    assert poisson(0.75, 100, 5) == times("poisson", 0.75, 5, n=100) == expected
    assert expected[:2] == [1.3782741194590926, 2.3069664826616645]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_rates(rate):
    with pytest.raises(ValueError, match="above 0 programs/s and finite"):
        poisson(rate, 3, 0)


@pytest.mark.parametrize(
    ("kind", "cv"),
    [("poisson", 1.0), ("gamma:cv=3", 3.0), ("gamma:cv=0.5", 0.5), ("gamma:cv=1", 1.0),
     ("weibull:cv=2", 2.0), ("weibull:cv=0.4", 0.4)],
)  # fmt: skip
def test_mean_rate_and_cv(kind, cv):
    found = gaps(times(kind, 4.0, 7, n=40_000))
    mean = fmean(found)
    assert abs(mean - 0.25) <= 4 * 0.25 * cv / 200
    # The sampling error of a CV grows with the fourth moment: 2 % would be too tight above 1.
    assert pstdev(found) / mean == pytest.approx(cv, rel=0.02 if cv <= 1 else 0.06)


@pytest.mark.parametrize("cv", [0.01, 0.3, 1.0, 2.0, 13.2, 100.0])
def test_the_weibull_shape_is_exact(cv):
    k = weibull_shape(cv)
    squared = math.exp(math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k)) - 1
    assert math.sqrt(squared) == pytest.approx(cv, rel=1e-9)
    assert weibull_shape(1.0) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_n_and_horizon_agree_on_the_common_front(kind):
    whole = times(kind, 3.0, 2, horizon=300.0)
    assert whole == sorted(whole)
    assert whole[0] > 0.0
    assert whole[-1] < 300.0
    assert times(kind, 3.0, 2, n=len(whole)) == whole
    assert times(kind, 3.0, 2, n=len(whole) + 9)[: len(whole)] == whole
    assert times(kind, 3.0, 2, horizon=100.0) == [t for t in whole if t < 100.0]
    assert times(kind, 3.0, 2, n=5, horizon=300.0) == whole[:5]
    assert all(t == on_grid(t) for t in whole)
    assert times(kind, 3.0, 3, n=5) != whole[:5]
    assert times(kind, 3.0, 2, n=0) == []


def test_kinds_have_random_numbers_of_their_own_but_a_ramp_bends_poisson():
    assert times("gamma:cv=1", 1.0, 1, n=3) != times("poisson", 1.0, 1, n=3)
    flat = times("ramp:to=1,over=50", 2.0, 1, n=200)
    assert flat == pytest.approx(times("poisson", 2.0, 1, n=200), abs=1e-8)


@pytest.mark.parametrize("to", [0.2, 1.0, 2.5])
def test_a_ramp_goes_from_the_rate_to_its_multiple(to):
    found = times(f"ramp:to={to}", 50.0, 1, horizon=400.0)
    for first in (0.0, 100.0, 200.0, 300.0):
        middle = 50.0 * (1.0 + (to - 1.0) * (first + 50.0) / 400.0)
        count = sum(first <= t < first + 100.0 for t in found)
        assert abs(count - 100.0 * middle) <= 4 * math.sqrt(100.0 * middle)


def test_a_ramp_stays_at_its_end_and_without_a_horizon_fits_n():
    found = times("ramp:to=3,over=20", 10.0, 1, horizon=220.0)
    after = sum(t >= 20.0 for t in found)
    assert abs(after - 6000) <= 4 * math.sqrt(6000)
    assert times("ramp:to=3", 10.0, 1, n=4000)[-1] == pytest.approx(4000 / 20.0, rel=0.05)


@pytest.mark.parametrize("to", [0.2, 1.0, 3.0])
def test_ramp_times_invert_the_expected_count(to):
    def expected(t):
        inside = min(t, 60.0)
        return 2.0 * inside + (to - 1.0) * inside**2 / 60.0 + 2.0 * to * max(0.0, t - 60.0)

    for t in (0.0, 1.0, 30.0, 59.999, 60.0, 61.0, 500.0):
        assert ramp_time(expected(t), 2.0, to, 60.0) == pytest.approx(t, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("poison", "did you mean 'poisson'"),
        ("gamma", "gamma needs cv=, such as gamma:cv=2"),
        ("gamma:3", "'3' is not known; gamma has cv="),
        ("gamma:cv=x", "cv must be a number from 0.01 to 100, got 'x'"),
        ("weibull:cv=0", "cv must be a number from 0.01 to 100, got '0'"),
        ("weibull:cv=nan", "got 'nan'"),
        ("gamma:cv=2,cv=3", "cv is given twice"),
        ("gamma:cv=2,k=3", "'k=3' is not known"),
        ("poisson:cv=2", "poisson has no parameter"),
        ("ramp:to=-1", "to must be a number"),
        ("ramp:over=5", "ramp needs to="),
        ("", "known: gamma, poisson, ramp, weibull"),
    ],
)
def test_errors_say_what_would_be_right(kind, said):
    with pytest.raises(WorkloadError, match=said):
        times(kind, 1.0, 0, n=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give n, or a horizon"),
        ({"n": -1}, "must not be negative"),
        ({"horizon": 0.0}, "horizon must be above 0 s"),
        ({"horizon": float("nan")}, "horizon must be above 0 s"),
        ({"horizon": 1e9}, "at most"),
    ],
)
def test_how_many_has_to_be_said(arguments, said):
    with pytest.raises(WorkloadError, match=said):
        times("poisson", 1.0, 0, **arguments)


def test_more_arrivals_than_anyone_means_are_refused(monkeypatch):
    monkeypatch.setattr("workloads.arrivals.MOST", 100)
    with pytest.raises(WorkloadError, match="more than 100 arrivals"):
        times("poisson", 1e6, 0, horizon=10.0)


def test_kinds_in_words():
    assert str(parse("poisson")) == "Poisson"
    assert str(parse("gamma:cv=3")) == "gamma, CV 3"
    assert str(parse("ramp:to=2.5,over=60")) == "Poisson, rate rising to x2.5 over 60 s"
    assert str(parse("ramp:to=0.5")) == "Poisson, rate falling to x0.5"


def test_recorded():
    spec = ProgramSpec(0, "k", 1, lambda s: None, 2.5)
    assert recorded([spec]) == [2.5]
    spec.arrival = None
    with pytest.raises(ValueError, match="no recorded arrival"):
        recorded([spec])
