"""``bench compare`` on runs of the simulator: planted regressions, and A/A on disjoint seeds."""

import hashlib
import json
from pathlib import Path

import pytest

from bench import metrics
from bench.compare import compare
from bench.comparing import Cell, Choice, choose, group_id
from bench.config import RunConfig
from bench.errors import UsageError
from bench.eventlog import from_memory
from bench.plan import plan
from bench.records import MemorySink
from bench.run import drive_plan, run
from bench.stats import Estimate
from bench.verdicts import GATES, Question
from tests.unit.bench.result_groups import LATENCY, group

ALARMS = 16
"""Of 200 A/A comparisons, at most (house rules of measuring, rule 10)."""
PARAMETERS = {"token_scale": "1/4"}


def simulated(seed, **config):
    """A cell of a run that left nothing on disk."""
    known = {"system": "vllm-opt", "workload": "chatbot", "parameters": PARAMETERS, "seed": seed}
    made = plan(RunConfig(**(known | config)))
    sink = MemorySink()
    drive_plan(made, sink)
    tables = from_memory(sink)
    numbers = gated(tables)
    summary = {
        "system": made.config.system, "workload": made.programs.name, "load": made.load, "badge": made.badge,
        "seed": seed, "trend": metrics.trend(tables.programs), "metrics": numbers,
        "result_hash": hashlib.sha256(repr(sink.programs).encode()).hexdigest(),
    }  # fmt: skip
    address = Path(f"{group_id(made.identity)}-{seed}")
    return Cell(address, summary, {**made.details(), "identity": made.identity})


def gated(tables):
    """The entries of the gates in a summary."""
    done = metrics.finished(tables.programs)
    latency = metrics.seconds_per_token(done)
    rate = metrics.throughput(tables.programs, tables.calls)["output_tokens_per_s"]
    share = len(done) / len(tables.programs)
    found = (latency["mean_of_ratios"], latency["ratio_of_means"], Estimate(rate), Estimate(share))
    return {name: e._asdict() for name, e in zip((*GATES, "system.finished_share"), found, strict=True)}


def runs(seeds, **config):
    return group([simulated(seed, **config) for seed in seeds])


def row(found, name=LATENCY):
    (only,) = (r for r in found["metrics"] if r["name"] == name)
    return only


def test_steps_that_take_10_percent_longer_are_caught_at_8_seeds():
    small, knobs = {"n": 60, "rate": 2.0}, {"engine.max_num_seqs": "8"}
    slower = dict.fromkeys(("latency.prefill", "latency.decode", "latency.overhead"), "1.1")
    base, new = runs(range(1, 9), knobs=knobs, **small), runs(range(1, 9), knobs=knobs | slower, **small)
    with pytest.raises(UsageError, match="different engines or step times"):
        compare(base, new, Question())
    found = compare(base, new, Question(allow=frozenset({"engine"})))
    assert (found["outcome"], found["exit"]) == ("worse", 3)
    assert 1.05 < row(found)["effect"] < 1.5
    assert row(found)["low"] > 1.0
    back = compare(new, base, Question(allow=frozenset({"engine"})))
    assert (back["exit"], row(back)["verdict"]) == (0, "better")
    apart = runs(range(101, 109), knobs=knobs | slower, **small)
    question = Question(paired=False, allow=frozenset({"engine"}))
    assert compare(base, apart, question)["outcome"] == "inconclusive"  # what pairing is good for
    hidden = compare(base, new, Question(threshold=0.9, allow=frozenset({"engine"})))
    assert hidden["exit"] == 0


@pytest.fixture(scope="module")
def overload():
    """PLAS on programs of many calls, more of them than the engine can take."""
    return {"system": "plas", "n": 150, "rate": 5.0}


@pytest.fixture(scope="module")
def good_bounds(overload):
    return runs(range(1, 9), knobs={"engine.max_num_seqs": "8"}, **overload)


@pytest.mark.parametrize("bounds", ["1,2,3", "100000,200000"])
def test_a_wrong_queue_bound_is_caught_under_overload(bounds, overload, good_bounds):
    """Bounds below every call, or above every program, leave one queue: first come, first served."""
    knobs = {"engine.max_num_seqs": "8", "scheduler.bounds": bounds}
    found = compare(good_bounds, runs(range(1, 9), knobs=knobs, **overload), Question())
    assert (found["outcome"], found["exit"]) == ("worse", 3)
    assert row(found)["verdict"] == "worse"
    assert "system.scheduler_knobs.bounds" in found["differences"]
    assert any("BASE: the backlog grows" in note for note in found["notes"])


def test_a_trace_at_its_recorded_arrivals_is_one_observation(tmp_path):
    do = [{"call": ["", 0], "new": [["a1", 64]], "reply": ["b1", 8]}]
    rows = [{"format": "agent-programs", "version": 1, "name": "t", "programs": 3}]
    rows += [{"id": i, "kind": "t", "arrival": i / 10, "do": do} for i in range(3)]
    trace = tmp_path / "t.jsonl"
    trace.write_text("".join(json.dumps(r) + "\n" for r in rows))
    for system in ("vllm-opt", "plas"):
        for seed in (1, 2, 3):
            run(RunConfig(system=system, workload=str(trace), seed=seed, out=tmp_path / "out"))
    base, new = (choose(tmp_path / "out", Choice(system=s), "BASE") for s in ("vllm-opt", "plas"))
    found = compare(base, new, Question())
    assert found["base"]["seeds"] == [1]
    assert any("seeds 2-3 give the same results" in note for note in found["notes"])


@pytest.mark.slow
def test_a_a_on_disjoint_seeds_of_the_simulator(capsys):
    """200 comparisons of 8 against 8 seeds, 3 200 runs of 24 short programs, no seed used twice."""
    small = {
        "n": 24,
        "rate": 2.0,
        "knobs": {"engine.max_num_seqs": "4"},
        "parameters": {"token_scale": "1/8"},
    }
    alarms, beyond = 0, 0
    for first in range(1, 3_201, 16):
        base, new = runs(range(first, first + 8), **small), runs(range(first + 8, first + 16), **small)
        found = compare(base, new, Question(threshold=0.0, paired=False))
        verdicts = {r["verdict"] for r in found["metrics"] if r["gated"]}
        alarms += bool(verdicts & {"worse", "better"})
        beyond += compare(base, new, Question(paired=False))["outcome"] == "worse"
        assert verdicts <= {"worse", "better", "~"}
    with capsys.disabled():
        print(f"\nA/A on the simulator: {alarms} alarms and {beyond} regressions of 5 % in 200")
    assert alarms <= ALARMS
    assert beyond <= ALARMS
