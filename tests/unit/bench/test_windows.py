import math

import numpy as np
import pandas as pd
import pytest

from bench import windows


def programs(arrivals, ends, tokens, kinds=None):
    n = len(arrivals)
    return pd.DataFrame(
        {"program": range(n), "kind": kinds or ["toy"] * n, "outcome": ["finished"] * n, "t_arrive": arrivals,
         "t_end": ends, "output_tokens": tokens, "wait_s": [1.0] * n}
    )  # fmt: skip


def test_transient_counts_all_and_says_what_the_horizon_would_cut():
    frame = programs([0.0, 10.0, 90.0], [20.0, 110.0, 100.0], [10, 100, 5])
    got = windows.transient(frame, 100.0)
    assert got["mean_of_ratios"].value == pytest.approx((2.0 + 1.0 + 2.0) / 3)
    assert got["ratio_of_means"].value == pytest.approx((20 + 100 + 10) / 115)
    assert got["finished_only"].value == pytest.approx(2.0)  # the second ends at 110
    assert got["finished_share"].value == pytest.approx(2 / 3)
    assert got["censored"].value == pytest.approx((2.0 + 0.9 + 2.0) / 3)


def test_sustained_leaves_out_the_first_fifth():
    frame = programs([0.0, 20.0, 99.0], [50.0, 30.0, 100.0], [1, 10, 10])
    assert windows.sustained(frame, 100.0)["mean_of_ratios"].value == pytest.approx((1.0 + 0.1) / 2)


def test_kinds_are_told_apart_only_where_there_are_several():
    frame = programs([0.0, 1.0], [10.0, 2.0], [10, 10], ["a", "b"])
    got = windows.of_kinds(frame, 10.0)
    assert got["a.transient.mean_of_ratios"].value == 1.0
    assert got["b.transient.mean_of_ratios"].value == pytest.approx(0.1)
    assert windows.of_kinds(frame.assign(kind="a"), 10.0) == {}


def samples(waiting):
    """A sample every 10 s on one engine."""
    return pd.DataFrame({"time": np.arange(len(waiting)) * 10.0, "engine": 0, "waiting": waiting})


def calls(n, ended=1.0, horizon=900.0):
    """``n`` calls a second; ``ended``: the share of them that end within the window."""
    arrive = np.arange(0.0, horizon, 1.0 / n)
    end = np.where(np.arange(arrive.size) % 100 < 100 * ended, arrive + 1.0, horizon + 500.0)
    return pd.DataFrame({"t_arrive": arrive, "t_end": end})


def test_a_growing_queue_is_not_sustained_and_an_empty_one_is():
    rng = np.random.default_rng(1)
    grows = rng.normal(0, 2, 91) + np.arange(91)
    assert windows.keeps_up(calls(5), samples(grows), 900.0)["kept_up"].value == 0.0
    assert windows.keeps_up(calls(5), samples(np.zeros(91)), 900.0)["kept_up"].value == 1.0
    level = 50 + rng.normal(0, 5, 91)
    assert windows.keeps_up(calls(5), samples(level), 900.0)["kept_up"].value == 1.0


def test_calls_that_stay_are_not_sustained_whatever_the_queue():
    got = windows.keeps_up(calls(5, ended=0.9), samples(np.zeros(91)), 900.0)
    assert got["calls_share"].value == pytest.approx(0.9, abs=0.01)
    assert got["kept_up"].value == 0.0


def test_a_level_queue_is_rarely_called_growing():
    rng = np.random.default_rng(2)
    kept = [
        windows.keeps_up(calls(5), samples(40 + rng.normal(0, 6, 91)), 900.0)["kept_up"].value
        for _ in range(200)
    ]
    assert sum(kept) >= 190


def test_several_engines_are_added_up():
    one = samples(np.arange(91) * 1.0)
    both = pd.concat([one, one.assign(engine=1, waiting=90.0 - one.waiting)])
    assert windows.keeps_up(calls(5), both, 900.0)["kept_up"].value == 1.0


def test_few_samples_say_nothing():
    got = windows.keeps_up(calls(5), samples(np.zeros(5)), 900.0)
    assert math.isnan(got["kept_up"].value)
    assert "n too small" in got["kept_up"].note
