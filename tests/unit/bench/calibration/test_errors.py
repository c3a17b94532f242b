"""Statistics of relative errors, by hand."""

import numpy as np
import pytest

from bench.calibration.errors import errors, held_out

NAN = np.nan
MEASURED = np.array([[1.0, 2.0, NAN], [2.0, NAN, NAN], [4.0, 2.0, NAN]])
SIMULATED = np.array([[1.1, 2.0, 9.0], [1.8, 3.0, 9.0], [4.0, 3.0, 9.0]])


def test_by_hand():
    ttft, tpot = errors(SIMULATED, MEASURED)
    assert (ttft.metric, ttft.n, tpot.metric, tpot.n) == ("TTFT", 3, "TPOT", 2)
    assert ttft.mean.value == pytest.approx(0.2 / 3)
    assert ttft.median.value == pytest.approx(0.1)
    assert ttft.of_means.value == pytest.approx(6.9 / 7 - 1)
    assert tpot.of_means.value == pytest.approx(0.25)
    assert (ttft.largest, tpot.largest) == pytest.approx((0.1, 0.5))


def test_intervals_hold_the_value_and_shrink_with_more_rows():
    rng = np.random.default_rng(1)

    def width(n):
        measured = np.full((n, 3), 1.0)
        (one, *_) = errors(measured * (1 + 0.1 * rng.standard_normal((n, 3))), measured)
        assert one.mean.low <= one.mean.value <= one.mean.high
        return one.mean.high - one.mean.low

    assert width(900) < width(60)


def test_neighbours_that_err_together_make_the_interval_wider():
    off = np.repeat(np.random.default_rng(2).standard_normal(30) * 0.1, 10)
    measured = np.full((300, 3), 1.0)
    simulated = measured * (1 + off)[:, None]
    (blocks, *_), (single, *_) = errors(simulated, measured), errors(simulated, measured, block=1)
    assert blocks.of_means.high - blocks.of_means.low > 2 * (single.of_means.high - single.of_means.low)


def test_what_a_calibration_keeps():
    kept = held_out(errors(SIMULATED, MEASURED), "somewhere")
    assert [(h.metric, h.statistic, h.n, h.where) for h in kept] == [
        ("TTFT", "median", 3, "somewhere"), ("TTFT", "p90", 3, "somewhere"),
        ("TPOT", "mean", 2, "somewhere"), ("TPOT", "p90", 2, "somewhere"),
    ]  # fmt: skip


def test_nine_of_ten_errors_are_within_the_p90():
    off = np.arange(1, 101) / 1000
    (found, *_) = errors(np.full((100, 3), 1.0) * (1 + off)[:, None], np.full((100, 3), 1.0), 1)
    assert (off <= found.p90).sum() == 90
    assert found.largest == pytest.approx(0.1)
