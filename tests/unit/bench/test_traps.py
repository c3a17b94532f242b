import pytest

from bench.config import RunConfig
from bench.run import run
from bench.traps import crowded, quantum_below_recompute, reprefill, roomy
from systems.catalog import load_system
from systems.latency.model import ConstantLatency
from vocabulary import INF

HALF = ConstantLatency(0.5)


def trap(context, unit="step", **knobs):
    spec = load_system("atlas", knobs={f"scheduler.{k}": v for k, v in ({"unit": unit} | knobs).items()})
    return quantum_below_recompute(context, dict(spec.scheduler_knobs), unit, 2048, HALF)


def test_an_engine_with_room_for_all_warns(tmp_path):
    assert "cannot differ" in roomy(0.004, 0.0, False)
    silent = [(0.006, 0.0, False), (0.004, 1.0, False), (0.004, 0.0, True), (float("nan"), 0.0, False)]
    assert [roomy(*case) for case in silent] == [""] * 4
    config = {"system": "vllm-opt", "workload": "chatbot", "n": 12, "rate": 1.0, "out": tmp_path}
    for knobs, says in ({}, True), ({"engine.max_num_seqs": "2"}, False):
        got = run(RunConfig(**config, knobs=knobs)).summary
        assert any("cannot differ" in w for w in got["warnings"]) is says


def test_crowded_levels_warn():
    assert "acts almost like FCFS" in crowded({"0": 0.95, "1": 0.05}, 8)
    assert crowded({"0": 1.0}, 1) == ""
    assert crowded({"0": 0.5, "1": 0.5}, 8) == ""


@pytest.mark.parametrize(("unit", "service"), [("step", 3.0), ("token", 4097.0), ("s", 1.5)])
def test_service_of_a_re_prefill(unit, service):
    assert reprefill(4097, unit, 2048, HALF) == service
    assert reprefill(0, unit, 2048, HALF) == 0.0


def test_a_quantum_below_the_longest_re_prefill_warns_and_names_the_knob():
    assert trap(63 * 2048) == ""
    line = trap(63 * 2048 + 1)
    assert "64 steps, and scheduler.quanta[0] is 64" in line
    assert "(129,025 tokens)" in line
    assert "max_num_batched_tokens" in line
    assert "256 tokens" in trap(256, unit="token")
    assert trap(255, unit="token") == ""
    assert "1 s, and" in trap(2049, unit="s")


def test_policies_without_a_finite_quantum_have_no_such_trap():
    assert quantum_below_recompute(10**6, {"ratio": 2.0}, "step", 2048, HALF) == ""
    assert quantum_below_recompute(10**6, {"quanta": (INF, INF)}, "step", 2048, HALF) == ""
    assert trap(10**6, beta="0") == ""
    assert "quanta[1]" in quantum_below_recompute(10**6, {"quanta": (INF, 9.0)}, "step", 2048, HALF)


def test_round_robin_has_one_quantum():
    knobs = dict(load_system("round-robin", knobs={"scheduler.quantum": "5"}).scheduler_knobs)
    assert "scheduler.quantum is 5:" in quantum_below_recompute(5 * 2048, knobs, "step", 2048, HALF)
    assert quantum_below_recompute(4 * 2048, knobs, "step", 2048, HALF) == ""


def test_a_run_says_so(tmp_path):
    knobs = {"scheduler.bounds": "1,8", "engine.max_num_batched_tokens": "256"}
    got = run(RunConfig("plas", "chatbot", n=20, rate=1.0, knobs=knobs, out=tmp_path)).summary
    assert any("scheduler.quanta[0] is 1:" in w for w in got["warnings"])
    assert got["queues"] == 3
