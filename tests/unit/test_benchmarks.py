"""What the benchmarks feed both simulators, and what they say where one is missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.records import MemorySink
from benchmarks import loads, simulator
from benchmarks.replay_ours import FixedTimes, replay, totals

ROOT = Path(__file__).parents[2]
PLANS = [[(700, 20, 0.5), (30, 10, 0.25)], [(16, 5, 1.0)]]


def asked(**engine):
    return {"scheduler": "fcfs", "step_s": [0.0625, 0.125], "engine": {"kv_blocks": 100} | engine}


def test_a_plan_comes_back_as_it_was_written(tmp_path):
    loads.write_plans(tmp_path / "t", PLANS, [0.1, 0.2])
    load = loads.read(tmp_path / "t")
    assert [[(sum(n for _, n in turn.new), turn.output) for turn in turns] for turns in load.programs] == [
        [(700, 20), (30, 10)],
        [(16, 5)],
    ]
    assert [turn.delay_s for turn in load.programs[0]] == [0.0, 0.5]
    assert load.times == pytest.approx([0.1, 0.2], abs=2**-20)
    assert all(time * 2**20 == int(time * 2**20) for time in load.times), "exact in both simulators"
    names = [name for turns in load.programs for turn in turns for name, _ in turn.new]
    assert len(set(names)) == len(names) == 4


def test_a_mooncake_row_is_a_session_of_one_call_with_shared_blocks(tmp_path):
    rows = [
        {"timestamp": 27000, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]},
        {"timestamp": 27000, "input_length": 1024, "output_length": 4, "hash_ids": [0, 2]},
        {"timestamp": 30000, "input_length": 1, "output_length": 4, "hash_ids": [3]},
    ]
    (tmp_path / "m").write_text("\n".join(map(json.dumps, rows)))
    loads.cut_mooncake(tmp_path / "m", tmp_path / "t", 2)
    load = loads.read(tmp_path / "t")
    assert load.times == [27.0, 27.0]
    assert [turns[0].new for turns in load.programs] == [[(0, 512), (1, 88)], [(0, 512), (2, 512)]]


def test_a_row_whose_ids_do_not_fit_is_named(tmp_path):
    row = {"timestamp": 0, "input_length": 513, "output_length": 3, "hash_ids": [0]}
    (tmp_path / "m").write_text(json.dumps(row))
    with pytest.raises(ValueError, match="m:1: hash_ids do not fit"):
        loads.cut_mooncake(tmp_path / "m", tmp_path / "t", 1)


def test_fixed_times_are_a_line():
    times = FixedTimes(0.25, 0.5)
    assert times.step([(5, 0)], 0, 0) == 0.25
    assert times.step([(5, 0)], 2, 9) == 0.75
    assert times.step([], 2, 9) == times.decode_line(2, 9)[0]


def test_our_replay_counts_what_the_other_one_counts(tmp_path):
    """Two turns: 1 step of prefill and 19 of decoding, a tool, 1 and 9; the replies are cached, too."""
    loads.write_plans(tmp_path / "t", PLANS[:1], [0.0])
    sink = MemorySink()
    end, _, _ = replay(loads.read(tmp_path / "t"), asked(), sink)
    found = totals(sink.calls, end, detail=True)
    assert end.time == 0.0625 + 19 * 0.125 + 0.5 + 0.0625 + 9 * 0.125
    assert found["input_tokens"] == 700 + 750
    assert found["hit_rate"] == (719 // 16 * 16) / 1450
    assert len(found["rows"]) == 2
    assert len(sink.decided) == 6


def work(**changes):
    found = {"calls": 1, "input_tokens": 5, "output_tokens": 2, "preemptions": 0, "hit_rate": 0.5}
    found |= {"makespan_s": 1.0, "ttft_s": 0.1, "e2e_s": 0.2, "rows": [[10.0, 20.0, 30.0]]}
    return found | changes


def test_the_same_work_starts_at_the_first_arrival():
    assert simulator.same_work(work(rows=[[0.0, 10.0, 20.0]]), work())[0]


@pytest.mark.parametrize(
    "changes", [{"rows": [[0.0, 10.0, 20.1]]}, {"rows": []}, {"preemptions": 1}, {"hit_rate": 0.6}]
)
def test_other_work_is_not_the_same(changes):
    equal, sentence = simulator.same_work(work(rows=[[0.0, 10.0, 20.0]]) | changes, work())
    assert not equal
    assert "same work: NO" in sentence


def test_without_dynamo_one_line_and_exit_code_6(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/simulator.py"), "--python", str(tmp_path / "none")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 6
    assert done.stderr.count("\n") == 1
    assert "make dynamo" in done.stderr
