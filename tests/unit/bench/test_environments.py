"""Sandboxes on virtual time: timelines by hand, and what is conserved."""

from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.drivers.environments import Environments
from systems.catalog import load_system
from systems.environments.gc_on_release import GcOnRelease
from systems.environments.none import Nothing
from systems.environments.on_demand import OnDemand
from systems.environments.prepare_ahead import PrepareAhead

COSTS = {"init_s": 10.0, "cores": 1.0, "disk_gb": 5.0, "shared_gb": 20.0, "teardown_s": 0.0}


class Clock:
    """Runs what was scheduled, in order of time."""

    def __init__(self, policy):
        self.events, self.now, self.asked = [], 0.0, 0
        self.went = []
        self.env = Environments(policy, self.at)

    def at(self, time, act):
        assert time >= self.now, "nothing is scheduled in the past"
        self.asked += 1
        heappush(self.events, (time, self.asked, act))

    def until(self, time):
        while self.events and self.events[0][0] <= time:
            self.now, _, act = heappop(self.events)
            act()
        self.now = time

    def use(self, program):
        if self.env.use(program, self.now, lambda: self.went.append((self.now, program))):
            self.went.append((self.now, program))

    def rows(self):
        return [(e.time, e.rule.removeprefix("env:"), e.call, e.value) for e in self.env.events]


def totals(clock, **wanted):
    found = clock.env.totals()
    return {name: found[name] for name in wanted}


def test_on_demand_the_first_tool_waits_and_the_next_does_not():
    clock = Clock(OnDemand(**COSTS))
    clock.env.arrive(1, 0.0)
    clock.until(3.0)
    clock.use(1)
    clock.until(20.0)
    clock.use(1)
    clock.env.end(1, 20.0)
    clock.until(30.0)
    clock.env.close(30.0)
    assert clock.went == [(13.0, 1), (20.0, 1)]
    assert clock.rows() == [(3.0, "prepare", 1, 25.0), (13.0, "ready", 1, 10.0), (13.0, "wait", 1, 10.0)]
    wanted = {"prepared": 1, "init_wait_s": 10.0, "peak_disk_gb": 25.0, "disk_gb_seconds": 25.0 * 27,
              "peak_ports": 1, "port_waits": 0, "torn_down": 0, "left": 1}  # fmt: skip
    assert totals(clock, **wanted) == wanted


def test_two_sandboxes_share_one_core():
    clock = Clock(OnDemand(**COSTS))
    for program in (1, 2):
        clock.env.arrive(program, 0.0)
    clock.use(1)
    clock.until(5.0)
    clock.use(2)
    clock.until(100.0)
    # 1 has had 5 of 10 when 2 comes; halved, it is done at 15, and 2, which has 5 left then, at 20
    assert clock.went == [(15.0, 1), (20.0, 2)]


def test_release_gives_disk_back_and_keeps_the_shared_image():
    clock = Clock(GcOnRelease(**COSTS | {"teardown_s": 2.0}))
    for program in (1, 2):
        clock.env.arrive(program, 0.0)
        clock.use(program)
    clock.until(20.0)
    assert clock.env.disk_gb == 30.0
    clock.env.end(1, 20.0)
    clock.until(21.0)
    assert clock.env.disk_gb == 30.0, "not before the teardown is done"
    clock.until(22.0)
    assert clock.env.disk_gb == 25.0
    clock.env.end(2, 22.0)
    clock.until(50.0)
    clock.env.close(50.0)
    assert (clock.env.disk_gb, clock.env.ports) == (20.0, 0)
    assert totals(clock, torn_down=2, left=0) == {"torn_down": 2, "left": 0}
    assert clock.env.totals()["disk_gb_seconds"] == 30.0 * 22 + 25.0 * 2 + 20.0 * 26


def test_a_sandbox_may_stay_for_a_while():
    clock = Clock(OnDemand(**COSTS, keep_s=7.0))
    clock.env.arrive(1, 0.0)
    clock.use(1)
    clock.until(10.0)
    clock.env.end(1, 10.0)
    clock.until(16.0)
    assert clock.env.ports == 1
    clock.until(17.0)
    assert clock.env.ports == 0


def test_ahead_of_its_turn_nobody_waits_for_it():
    clock = Clock(PrepareAhead(**COSTS, ahead=1))
    clock.env.arrive(1, 0.0)
    clock.env.held(1, 5, 0.0)
    clock.env.held(1, 2, 1.0)
    assert clock.rows() == []
    clock.until(2.0)
    clock.env.held(1, 1, 2.0)
    clock.env.held(1, 0, 2.0)
    clock.until(12.0)
    clock.env.resumed(1, 12.0)
    clock.use(1)
    assert clock.went == [(12.0, 1)]
    assert clock.env.totals()["init_wait_s"] == 0.0
    clock.env.arrive(2, 12.0)
    clock.env.resumed(2, 12.0)
    clock.until(18.0)
    clock.use(2)
    clock.until(30.0)
    assert clock.went[1] == (22.0, 2)
    assert clock.env.totals()["init_wait_s"] == 4.0


def test_who_finds_no_port_waits_in_line():
    clock = Clock(GcOnRelease(**COSTS | {"cores": 8.0, "most_ports": 2}))
    for program in (1, 2, 3):
        clock.env.arrive(program, 0.0)
        clock.use(program)
    clock.until(15.0)
    assert clock.went == [(10.0, 1), (10.0, 2)]
    clock.env.end(2, 15.0)
    clock.until(40.0)
    assert clock.went[2:] == [(25.0, 3)]
    assert totals(clock, port_waits=1, peak_ports=2) == {"port_waits": 1, "peak_ports": 2}
    assert clock.env.totals()["init_wait_s"] == 10.0 + 10.0 + 25.0


def test_a_port_is_taken_from_who_is_over_before_who_is_not():
    clock = Clock(PrepareAhead(**COSTS | {"cores": 8.0, "most_ports": 2}))
    for program in (1, 2, 3):
        clock.env.arrive(program, 0.0)
    clock.env.resumed(1, 0.0)
    clock.env.resumed(2, 0.0)
    clock.until(10.0)
    clock.use(1)
    clock.env.end(1, 10.0)  # its sandbox stays for ever
    clock.use(3)
    clock.until(20.0)
    assert clock.went == [(10.0, 1), (20.0, 3)]
    clock.env.arrive(4, 20.0)
    clock.use(4)  # 2 was prepared and is not used: it has to go
    clock.until(30.0)
    assert clock.went[2:] == [(30.0, 4)]
    clock.env.end(3, 30.0)
    clock.use(2)
    clock.until(50.0)
    assert clock.went[3:] == [(40.0, 2)]
    assert clock.env.totals()["forced_out"] == 3


def test_a_program_that_ends_while_it_is_prepared_leaves_nothing():
    clock = Clock(OnDemand(**COSTS | {"most_ports": 1}))
    for program in (1, 2):
        clock.env.arrive(program, 0.0)
        clock.use(program)
    clock.until(4.0)
    clock.env.end(2, 4.0)
    clock.env.end(1, 4.0)
    clock.until(100.0)
    clock.env.close(100.0)
    assert clock.went == []
    assert (clock.env.ports, clock.env.disk_gb) == (0, 20.0)


def test_without_sandboxes_tools_are_ready_and_nothing_is_counted():
    clock = Clock(Nothing())
    clock.env.arrive(1, 0.0)
    clock.env.held(1, 0, 0.0)
    clock.env.resumed(1, 0.0)
    clock.use(1)
    clock.env.end(1, 1.0)
    clock.env.close(1.0)
    assert clock.went == [(0.0, 1)]
    assert set(clock.env.totals().values()) == {0.0}
    assert clock.env.events == []


@pytest.mark.parametrize(("programs", "seconds"), [(24, 30.0), (64, 30.0), (96, 45.0)])
def test_more_programs_than_cores_take_longer_to_prepare(programs, seconds):
    clock = Clock(OnDemand())
    for program in range(programs):
        clock.env.arrive(program, 0.0)
        clock.use(program)
    clock.until(1000.0)
    found = clock.env.totals()
    assert found["prepare_s"] / found["prepared"] == pytest.approx(seconds)


def test_release_is_what_bounds_the_disk():
    """Episodes one after the other at 96 places: 480 sandboxes that stay, or never more than 97."""
    peaks = []
    for policy in (OnDemand(), GcOnRelease()):
        clock = Clock(policy)
        for program in range(480):
            clock.env.arrive(program, clock.now)
            clock.use(program)
            if program >= 96:
                clock.env.end(program - 96, clock.now)
            clock.until(clock.now + 10.0)
        peaks.append(clock.env.totals()["peak_disk_gb"])
    assert peaks[0] == 100.0 + 480 * 7.0
    assert peaks[1] <= 100.0 + 98 * 7.0
    assert 4.0 < peaks[0] / peaks[1] < 4.5


STEP = st.tuples(
    st.sampled_from(["arrive", "held", "resumed", "use", "end", "wait"]),
    st.integers(0, 7),
    st.floats(0.0, 9.0),
)
POLICIES = st.sampled_from([OnDemand, GcOnRelease, PrepareAhead])


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=60), POLICIES, st.integers(1, 3), st.sampled_from([0.0, 3.0, float("inf")]))
def test_nothing_leaks_and_nobody_waits_for_ever(steps, kind, most, keep):
    clock = Clock(kind(**COSTS | {"most_ports": most, "cores": 2.0, "teardown_s": 1.0}, keep_s=keep))
    alive, seen, used = set(), set(), []
    for what, program, seconds in steps:
        if what == "wait":
            clock.until(clock.now + seconds)
        elif what == "arrive" and program not in seen:
            seen.add(program)
            alive.add(program)
            clock.env.arrive(program, clock.now)
        elif program in alive and what == "held":
            clock.env.held(program, int(seconds), clock.now)
        elif program in alive and what == "resumed":
            clock.env.resumed(program, clock.now)
        elif program in alive and what == "use":
            used.append(program)
            clock.use(program)
        elif program in alive and what == "end":
            alive.discard(program)
            clock.env.end(program, clock.now)
        assert 0 <= clock.env.ports <= most
    while alive:  # whoever used a tool gets it, in some order, as the others end
        clock.until(clock.now + 100.0)
        went = {program for _, program in clock.went}
        ready = [program for program in sorted(alive) if program in went or program not in used]
        assert ready, f"{alive} wait for ever"
        alive.discard(ready[0])
        clock.env.end(ready[0], clock.now)
    clock.until(clock.now + 100.0)
    clock.env.close(clock.now)
    found = clock.env.totals()
    assert found["left"] == clock.env.ports
    assert found["left"] == 0 or keep == float("inf")
    assert clock.env.disk_gb == (20.0 if found["peak_ports"] else 0.0) + 5.0 * found["left"]
    assert found["prepared"] + found["torn_down"] >= found["left"]
    assert found["prepare_s"] >= 0.0


def test_systems_name_their_environment():
    spec = load_system("vllm-opt", environment="prepare-ahead", knobs={"environment.keep_s": "0"})
    assert (spec.environment, dict(spec.environment_knobs)["keep_s"]) == ("prepare-ahead", 0.0)
