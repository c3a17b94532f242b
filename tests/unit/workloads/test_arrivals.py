from itertools import pairwise
from statistics import fmean

import pytest

from vocabulary import on_grid
from workloads.arrivals import poisson, recorded
from workloads.base import ProgramSpec


def test_poisson_rate_and_grid():
    times = poisson(2.0, 5000, 1)
    assert times == sorted(times)
    assert all(t == on_grid(t) for t in times)
    assert fmean(b - a for a, b in pairwise(times)) == pytest.approx(0.5, rel=0.05)


def test_another_rate_stretches_the_same_times():
    assert poisson(1.0, 50, 3) == pytest.approx([2 * t for t in poisson(2.0, 50, 3)], abs=1e-8)
    assert poisson(1.0, 50, 3) != poisson(1.0, 50, 4)
    assert poisson(1.0, 50, 3)[:20] == poisson(1.0, 20, 3)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_rates(rate):
    with pytest.raises(ValueError, match="above 0 programs/s and finite"):
        poisson(rate, 3, 0)


def test_recorded():
    spec = ProgramSpec(0, "k", 1, lambda s: None, 2.5)
    assert recorded([spec]) == [2.5]
    spec.arrival = None
    with pytest.raises(ValueError, match="no recorded arrival"):
        recorded([spec])
