"""A recording played again."""

import numpy as np
import pytest

from bench.calibration.recordings import Facts, Point, Request
from bench.calibration.replay import engine_for, measure, replay, requests_of
from bench.errors import UsageError
from systems.latency import ConstantLatency, latency_for
from tests.unit.bench.calibration.recorded import requests
from vocabulary import EngineConfig

ENGINE = EngineConfig(kv_blocks=400, max_num_seqs=4, max_num_batched_tokens=64)
STEP = ConstantLatency(0.5)


def test_by_hand():
    # 100 tokens of prompt in chunks of 64: two steps to the first token, two more for the other two
    played = replay([Request(10.0, 100, 3), Request(10.7, 20, 1)], ENGINE, STEP)
    assert played.times()[0] == pytest.approx([1.0, 0.5, 2.0])
    # comes inside the second step (which ends at 1.0), is prefilled by the third
    assert played.times()[1][[0, 2]] == pytest.approx([0.8, 0.8], abs=1e-6)
    assert np.isnan(played.times()[1][1])


def test_prompts_share_nothing():
    played = replay([Request(0.0, 64, 2), Request(5.0, 64, 2)], ENGINE, STEP)
    assert [call.cached_tokens for call in played.calls] == [0, 0]


def test_a_closed_loop_keeps_so_many_at_a_time():
    played = replay([Request(None, 10, 4)] * 6, ENGINE, STEP, concurrency=2)
    assert [call.t_arrive for call in played.calls] == pytest.approx([0, 0, 2, 2, 4, 4])


def test_sim_and_reference_agree():
    engine = EngineConfig(kv_blocks=500, max_num_batched_tokens=512)
    latency = latency_for("llama-3.1-8b", "rtx4090")
    one, other = (replay(requests(40), engine, latency, host=host) for host in ("sim", "reference"))
    assert np.array_equal(one.times(), other.times(), equal_nan=True)
    assert sum(call.preemptions for call in one.calls) == sum(call.preemptions for call in other.calls) > 0


def test_a_request_that_never_fits_is_named():
    with pytest.raises(UsageError, match="cannot be served by the simulated engine"):
        replay([Request(0.0, 7000, 10)], ENGINE, STEP)


def test_lengths_are_drawn_as_the_protocol_says():
    point = Point(1000, 200, 8, 4, 1.0, 1.0, 0.8, 80)
    drawn = requests_of(point)
    assert drawn == requests_of(point) != requests_of(point, seed=2)
    assert len(drawn) == 80
    assert all(800 <= r.prompt <= 1000 and 160 <= r.output <= 200 for r in drawn)
    assert {(r.prompt, r.output) for r in requests_of(point._replace(ratio=1.0))} == {(1000, 200)}


def test_a_point_gives_means():
    times = measure(Point(64, 5, 1, 1, 1.0, 1.0, 1.0, 3), ENGINE, STEP)
    assert times == pytest.approx([0.5, 0.5, 2.5])


def test_the_engine_takes_the_recording_s_limits_then_those_asked_for():
    latency = latency_for("llama-3.1-8b", "a100")
    facts = Facts("requests", "x", limits={"max_num_seqs": 7, "kv_blocks": 99}, prefix_cache=False)
    engine = engine_for(latency, facts, {"kv_blocks": 50})
    assert (engine.kv_blocks, engine.max_num_seqs, engine.prefix_cache) == (50, 7, False)
    with pytest.raises(UsageError, match="max_num_batched_tokens"):
        engine_for(latency, facts, {"max_num_batched_tokens": 1})
