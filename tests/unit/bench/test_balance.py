"""How uneven engines are, and programs that move."""

import math

import pandas as pd
import pytest

from bench.balance import gaps, imbalance, moved
from bench.kv_cost import chains
from bench.records import EngineSample
from tests.unit.bench.test_kv_cost import row, tables_of


def samples(*rows):
    """(time, engine, blocks in use)."""
    return pd.DataFrame([EngineSample(t, e, 0, 0, used, 0) for t, e, used in rows])


def test_the_gap_is_between_the_fullest_and_the_emptiest_engine():
    frame = samples((0, 0, 10), (0, 1, 0), (60, 0, 50), (60, 1, 10), (180, 0, 50), (180, 1, 50))
    assert gaps(frame, 100).gap.tolist() == pytest.approx([0.1, 0.4, 0.0])
    got = imbalance(frame, 100)
    assert got["max"] == pytest.approx(0.4)
    assert got["minutes_over_20"] == 2.0
    assert got["share_over_20"] == pytest.approx(2 / 3)
    assert got["mean"] == pytest.approx((60 * 0.1 + 120 * 0.4) / 180)


def test_engines_need_not_be_sampled_at_the_same_time():
    frame = samples((0, 0, 80), (30, 1, 80), (60, 0, 80))
    assert gaps(frame, 100).gap.tolist() == pytest.approx([0.8, 0.0, 0.0])


def test_one_engine_has_no_imbalance():
    assert all(map(math.isnan, imbalance(samples((0, 0, 10), (10, 0, 20)), 100).values()))


def test_moved_programs_compute_again_what_they_left():
    calls = [
        row(0, 0, 0.0, 9.0, 160, 17), row(0, 1, 19.0, 28.0, 320, 16, 0, engine=1),
        row(0, 2, 38.0, 48.0, 480, 16, 320, engine=1), row(1, 0, 0.0, 9.0, 160, 17),
        row(1, 1, 19.0, 28.0, 320, 16, 96),
    ]  # fmt: skip
    got = moved(chains(tables_of(calls, 1.0, engines=2).calls))
    assert (got["calls"], got["programs"], got["calls_share"]) == (1, 1, 1 / 3)
    assert got["reprefill_tokens"] == 176
    assert got["lost_tokens"] == 176 + 80
