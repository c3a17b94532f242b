import math
from statistics import fmean, pstdev

import pytest

from workloads.base import WorkloadError
from workloads.random_streams import Stream, parse_dist, stream

N = 20_000


@pytest.mark.parametrize(
    ("table", "mean"),
    [
        ({"dist": "constant", "value": 7}, 7.0),
        ({"dist": "uniform", "low": 2, "high": 4}, 3.0),
        ({"dist": "uniform_int", "low": 2, "high": 12}, 7.0),
        ({"dist": "normal", "mean": 0.892, "sd": 0.24}, 0.892),
        ({"dist": "lognormal", "mu": 1.0, "sigma": 0.5}, math.exp(1.125)),
        ({"dist": "weibull", "k": 1.347, "scale": 301.8}, 301.8 * math.gamma(1 + 1 / 1.347)),
        ({"dist": "gamma", "shape": 7.348, "scale": 1.562}, 7.348 * 1.562),
        ({"dist": "gamma", "shape": 0.5, "scale": 2.0}, 1.0),
        ({"dist": "exponential", "mean": 66.8}, 66.8),
        (
            {"dist": "lognormal_pareto", "mu": 3, "sigma": 0.1, "xmin": 100, "alpha": 4, "tail": 0.3},
            0.7 * math.exp(3.005) + 0.3 * 400 / 3,
        ),
        ({"dist": "empirical", "p": {"1": 0.25, "2": 0.25, "9": 0.5}}, 5.25),
        ({"dist": "hazard", "by_step": {"2": 0.5, "3": 1.0}}, 2.5),
        ({"dist": "quantiles", "at": {"0": 0, "25": 0, "100": 8}}, 3.0),
    ],
)
def test_means(table, mean):
    dist, source = parse_dist(table, "x"), Stream(5)
    values = [dist.value(source) for _ in range(N)]
    assert abs(fmean(values) - mean) <= 4 * pstdev(values) / N**0.5 + 1e-12
    assert source.drawn == N, "every draw must use one count, or parameters shift other draws"


def test_counts_are_rounded_and_clipped():
    source = Stream(1)
    assert parse_dist(2.5, "x").count(source) == 3
    assert parse_dist({"dist": "constant", "value": 100, "max": 80}, "x").count(source) == 80
    assert parse_dist(100, "x").scaled(1 / 16).tokens(source) == 6
    assert parse_dist(1, "x").scaled(1 / 16).tokens(source) == 1


def test_streams_are_pure_and_apart():
    assert [Stream(3).uniform() for _ in range(2)] == [Stream(3).uniform()] * 2
    assert stream(3, "a").bits() != stream(3, "b").bits()
    draws = [Stream(9).uniform() for _ in range(5)]
    assert all(0 < u < 1 for u in draws)
    assert sorted(Stream(4).shuffled(range(50))) == list(range(50))
    assert abs(fmean(Stream(k).binomial(5, 0.9) for k in range(4000)) - 4.5) < 0.05


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"dist": "lognorm", "mu": 1, "sigma": 1}, "x.dist: 'lognorm' is not one of"),
        ({"dist": "lognormal", "mu": 1}, "x.sigma: expected a number, got None"),
        ({"dist": "lognormal", "mu": 1, "sigma": -1}, "x.sigma: must not be negative"),
        ({"dist": "lognormal", "mu": 1e9, "sigma": 1}, "overflow"),
        ({"dist": "weibull", "k": 0, "scale": 1}, "x.k: must be above 0"),
        (
            {"dist": "lognormal_pareto", "mu": 3, "sigma": 1, "xmin": 9, "alpha": 2, "tail": 1},
            "x.tail: must be a probability below 1",
        ),
        ({"dist": "constant", "value": 1, "valu": 2}, "x.valu: not a field of constant"),
        ({"dist": "constant", "value": float("nan")}, "x.value: expected a number"),
        ({"dist": "constant", "value": 1, "min": 5, "max": 2}, "min \\(5\\) is above max"),
        ({"dist": "empirical", "p": {"1": 0.2}}, "must sum to 1"),
        ({"dist": "empirical", "p": {"one": 1.0}}, "'one' is not a number"),
        ({"dist": "hazard", "by_step": {"2": 0.5}}, "the last hazard must be 1"),
        ({"dist": "uniform_int", "low": 1.5, "high": 2}, "must be integers"),
        (True, "expected a number or a table"),
    ],
)
def test_bad_tables_name_the_field(table, said):
    with pytest.raises(WorkloadError, match=said):
        parse_dist(table, "x")


def test_quantiles_are_met_with_straight_lines_between():
    dist, source = (
        parse_dist({"dist": "quantiles", "at": {"0": 1, "50": 3, "90": 3, "100": 13}}, "x"),
        Stream(3),
    )
    values = sorted(dist.value(source) for _ in range(N))
    for level, expected in ((0.0, 1.0), (0.25, 2.0), (0.7, 3.0), (0.95, 8.0), (0.99995, 13.0)):
        assert values[int(level * N)] == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ({"0": 1, "100": 0}, "expected rising values"),
        ({"5": 1, "100": 2}, "at levels 0 to 100"),
        ({"0": 1, "half": 2, "100": 3}, "'half' is not a number"),
        ({"0": 1, "50": "x", "100": 3}, "x.at.50: expected a number"),
        ({}, "expected a table"),
        (3, "expected a table"),
    ],
)
def test_bad_quantiles(at, said):
    with pytest.raises(WorkloadError, match=said):
        parse_dist({"dist": "quantiles", "at": at}, "x")


def test_the_most_tokens_of_a_distribution():
    assert parse_dist({"dist": "constant", "value": 100}, "x").scaled(1 / 16).most_tokens == 6
    assert parse_dist({"dist": "lognormal", "mu": 1, "sigma": 1}, "x").most_tokens == 1 << 40
    assert parse_dist({"dist": "lognormal", "mu": 1, "sigma": 1, "max": 0.2}, "x").most_tokens == 1
