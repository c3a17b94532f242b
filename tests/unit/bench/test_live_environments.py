"""Sandboxes in the live driver: tools wait for them on a real clock, and none is left behind."""

import pytest

from bench.config import RunConfig
from bench.drivers.effects import ProgramError
from bench.errors import UsageError
from bench.live.plan import live_plan
from systems.capabilities import capabilities, check
from systems.catalog import load_system
from systems.environments.gc_on_release import GcOnRelease
from systems.environments.on_demand import OnDemand
from systems.environments.prepare_ahead import PrepareAhead
from tests.unit.bench.test_live_driver import Golden, run, two_turns

COSTS = {"init_s": 0.1, "cores": 8.0, "disk_gb": 5.0, "shared_gb": 20.0, "teardown_s": 0.0}


def gap(live, program=0):
    """Seconds between the reply to a program's first call and its second call."""
    first, second = (c for c in sorted(live.calls, key=lambda c: c.index) if c.program == program)
    return second.t_ready - first.t_last


def test_a_tool_waits_for_its_sandbox_and_that_is_no_tool_time():
    live = run(Golden(), two_turns, environment=OnDemand(**COSTS))
    assert gap(live) >= 0.15
    assert 0.05 <= live.programs[0].tool_s < 0.15
    assert live.environment["prepared"] == live.environment["left"] == 1
    assert live.environment["init_wait_s"] == pytest.approx(0.1, abs=0.05)
    assert [row.rule for row in live.decisions] == ["env:prepare", "env:ready", "env:wait"]


def test_prepared_at_arrival_it_is_there_when_the_tool_comes():
    live = run(Golden(delay=0.15), two_turns, environment=PrepareAhead(**COSTS))
    assert live.environment["init_wait_s"] == 0.0
    assert [row.rule for row in live.decisions] == ["env:prepare", "env:ready"]


def test_ports_are_waited_for_and_come_back():
    live = run(Golden(), *[two_turns] * 3, environment=GcOnRelease(**COSTS | {"most_ports": 1}))
    assert all(row.outcome == "finished" for row in live.programs)
    assert (live.environment["peak_ports"], live.environment["port_waits"]) == (1, 2)
    assert [row.rule for row in live.decisions].count("env:ready") == 3


def test_who_leaves_while_waiting_ends_the_run_as_any_other():
    async def leaves(s):
        async def work():
            await s.tool("search", 0.01)

        await s.call(new=5, output=1)
        await s.spawn(work())
        await s.abandon()

    live = run(Golden(), leaves, two_turns, environment=OnDemand(**COSTS))
    assert [row.outcome for row in live.programs] == ["abandoned", "finished"]


def test_a_failed_run_leaves_no_timer():
    async def broken(s):
        await s.call(new=5, output=1)
        raise ValueError("a bug")

    with pytest.raises(ProgramError, match="a bug"):
        run(Golden(), broken, environment=PrepareAhead(**COSTS | {"init_s": 3600.0}))


def test_engines_say_what_they_do_with_sandboxes():
    spec = load_system("vllm-opt", environment="gc-on-release")
    assert check(spec, "vllm") == check(spec, "sim") == []
    ahead = load_system("vllm-opt", environment="prepare-ahead", gate="program-cap")
    (fallback,) = check(ahead, "vllm")
    assert str(fallback).startswith("environment prepare-ahead -> at arrival (")
    assert check(ahead, "sim") == []
    assert [row.status for row in capabilities(ahead, "vllm") if row.option == "environment"] == ["fallback"]


def test_locust_knows_none():
    knobs = {"environment": "on-demand", "live.driver": "locust"}
    config = RunConfig(system="vllm-opt", workload="swe:mini", engine="vllm", model="tiny-llama", gpu="here",
                       rate=1.0, n=2, knobs=knobs)  # fmt: skip
    with pytest.raises(UsageError, match=r"live\.driver=locust knows no sandboxes"):
        live_plan(config)
