"""Sandboxes in the virtual-time driver: who waits for them, and when they are prepared."""

from systems.environments.gc_on_release import GcOnRelease
from systems.environments.on_demand import OnDemand
from systems.environments.prepare_ahead import PrepareAhead
from systems.gates.program_cap import ProgramCap
from tests.unit.bench.test_governed_driver import agent
from tests.unit.bench.test_virtual_driver import run

COSTS = {"init_s": 10.0, "cores": 8.0, "disk_gb": 5.0, "shared_gb": 20.0, "teardown_s": 0.0}


def rows(sink, what):
    return [(row.call, row.time) for row in sink.decided if row.rule == f"env:{what}"]


def test_on_demand_a_tool_begins_when_its_sandbox_is_there():
    sink, end = run(agent(calls=2, tool=3.0), times=[0.0], environment=OnDemand(**COSTS))
    first, second = sorted(sink.calls, key=lambda row: row.t_arrive)
    assert second.t_arrive == first.t_end + 10.0 + 3.0
    assert rows(sink, "ready") == [(0, first.t_end + 10.0)]
    assert end.said["environment"]["init_wait_s"] == 10.0
    assert end.said["environment"]["left"] == 1


def test_ahead_of_the_first_tool_only_the_rest_is_waited_for():
    sink, end = run(agent(calls=2, tool=3.0), times=[0.0], environment=PrepareAhead(**COSTS))
    first, second = sorted(sink.calls, key=lambda row: row.t_arrive)
    assert second.t_arrive == 10.0 + 3.0
    assert rows(sink, "ready") == [(0, 10.0)]
    assert end.said["environment"]["init_wait_s"] == 10.0 - first.t_end


def test_at_the_door_it_is_prepared_when_few_are_before_it():
    gate, environment = ProgramCap(programs=1), PrepareAhead(**COSTS, ahead=1)
    sink, end = run(*[agent(tool=20.0)] * 5, times=[0.0] * 5, gate=gate, environment=environment)
    over = {row.program: row.t_end for row in sink.programs}
    # 0 goes in; 1 and 2 have at most one before them; 3 follows when 1 goes in, 4 when 2 does
    assert rows(sink, "prepare") == [(0, 0.0), (1, 0.0), (2, 0.0), (3, over[0]), (4, over[1])]
    assert end.said["environment"]["init_wait_s"] == 10.0 - min(row.t_end for row in sink.calls)


def test_release_takes_it_down_at_the_programs_end():
    sink, end = run(agent(tool=1.0), agent(tool=1.0), times=[0.0, 50.0], environment=GcOnRelease(**COSTS))
    assert rows(sink, "gone") == [(row.program, row.t_end) for row in sink.programs]
    assert (end.said["environment"]["peak_disk_gb"], end.said["environment"]["left"]) == (25.0, 0)
