"""What the record-and-replay script concludes from two runs."""

import json

import numpy as np
import pytest

from bench.errors import MissingError, UsageError
from benchmarks import record_replay
from benchmarks.record_replay import Side, interval, measured, missed, numbers, ratio, show
from systems.engines.vllm_virtual import EngineUnavailable
from workloads.agents.host_process import HostGone
from workloads.base import WorkloadError


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


def one(latency=1.0, hits=0.0):
    return {"latency": latency, "latency_95": [1.0, 1.0], "hits": hits, "hits_95": [0.0, 0.0], "paired": True}


def test_each_run_has_its_own_steps():
    log = b'{"head": 1}\n{"calls": [["chatcmpl-warm.0.main.0-a"]]}\n{"calls": []}\n'
    earlier, run = (b'{"calls": [["chatcmpl-%s.0.main.0-a"]]}\n' % name for name in (b"earlier", b"run"))
    assert record_replay.steps_of("earlier", log + earlier + run) == b'{"head": 1}\n' + earlier
    assert record_replay.steps_of("run", log + earlier + run) == b'{"head": 1}\n' + run


def test_every_replay_counts_for_the_verdict():
    assert missed({"recorded arrivals": one(1.1 - 1e-9), "closed loop": one(0.9 + 1e-9, -0.05)}) == []
    assert missed({"recorded arrivals": one(), "closed loop": one(1.12, 0.06)}) == [
        "closed loop: mean program latency is 1.120 times the measured one",
        "closed loop: the hit rate is +0.060 off",
    ]
    assert len(missed({"x": one(float("nan"), float("nan"))})) == 2


FOUND = {
    "sides": {"measured": numbers(side([1, 2, 3], [1, 2, 3]))}, "ratios": {"closed loop": one(1.5)},
    "fits": {
        name: {"held_out": [{"statistic": s, "error": error} for s in ("error of means", "median")]}
        for name, error in (("this run", 0.01), ("an earlier run", 0.04))
    },
    "interrupted_share": 0.0, "bytes_per_call": 900.0, "missed": ["closed loop: it is slow"],
}  # fmt: skip


def test_what_is_in_sample_is_told_from_what_is_not(capsys):
    show(FOUND)
    said = capsys.readouterr().out
    assert "fitted to this run, on its steps not fitted on: mean 1.0% off" in said
    assert "fitted to an earlier run, on its steps not fitted on: mean 4.0% off" in said
    assert "MISSED: closed loop: it is slow" in said


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineUnavailable("no vLLM"), 6),
        (HostGone("the host died: last words"), 6),
        (MissingError("no data"), 6),
        (WorkloadError("no agent 'raect'"), 2),
        (UsageError("it cannot be"), 2),
        (RuntimeError("the engine did not decode what was scripted"), 4),
        (None, 1),
    ],
)
def test_what_goes_wrong_is_a_line_and_an_exit_code(monkeypatch, capsys, error, code):
    def compare(given, folder):
        if error is None:
            return FOUND
        raise error

    monkeypatch.setattr(record_replay, "compare", compare)
    monkeypatch.setattr("sys.argv", ["record_replay.py"])
    assert record_replay.main() == code
    said = capsys.readouterr().err
    assert said == ("" if error is None else f"error: {error}\n")
