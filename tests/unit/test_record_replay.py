"""What the record-and-replay script concludes from two runs."""

import json

import numpy as np
import pytest

from benchmarks.record_replay import Side, interval, measured, numbers, ratio


def side(latency, cached, name="x"):
    ones = np.ones(len(latency))
    return Side(name, np.array(latency, float), ones, ones, np.array(cached, float), 10 * ones)


def line(program, start, end, cached=0, **more):
    return {"event": "call", "outcome": "finished", "program": program, "t_arrive": start, "t_end": end,
            "cached_tokens": cached, "prompt_tokens": 10, **more}  # fmt: skip


ROW = {"t_arrive": 1.0, "t_first_token": 1.5, "t_end": 3.5, "output_tokens": 5}


def test_pairs_are_compared_as_pairs():
    truth = side([1, 10, 3, 50], [0, 5, 9, 2])
    slower = side([1.1, 11, 3.3, 55], [0, 5, 9, 2])
    found = ratio(slower, truth, paired=True)
    assert found["latency"] == pytest.approx(1.1)
    assert found["latency_95"] == pytest.approx([1.1, 1.1])
    assert (found["hits"], found["hits_95"]) == (0.0, [0.0, 0.0])
    low, high = ratio(slower, truth, paired=False)["latency_95"]
    assert low < 0.7 < 1.5 < high


def test_a_program_lasts_from_its_first_arrival_to_its_last_end(tmp_path):
    calls = [line(1, 2.0, 9.0, 4), line(0, 1.0, 3.0), line(0, 4.0, 5.0, 6), line(1, 3.0, 4.0)]
    failed = line(0, 8.0, 99.0) | {"outcome": "error"}
    (tmp_path / "calls-0001.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [*calls, failed]))
    found = measured(tmp_path, [ROW] * 4)
    assert list(found.latency) == [4.0, 7.0]
    assert (list(found.ttft), list(found.tpot)) == ([0.5] * 4, [0.5] * 4)
    assert found.hit_rate == 0.25
    with pytest.raises(RuntimeError, match="4 calls in the recording, 3 in the scheduler's log"):
        measured(tmp_path, [ROW] * 3)


def test_numbers_have_intervals():
    found = numbers(side(range(1, 21), [5] * 20))
    assert (found["latency_mean"], found["hit_rate"], found["programs"]) == (10.5, 0.5, 20)
    assert found["latency_mean_95"][0] < 10.5 < found["latency_mean_95"][1]
    assert interval(np.full(9, 3.0)) == [3.0, 3.0]
