"""The virtual-time driver with a gate, retention and sandboxes: who is told what, and whose time it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.drivers.virtual import ProgramError
from systems.gates.program_cap import ProgramCap
from systems.protocols import Pause, Resume
from tests.scenarios import RoundRobin
from tests.unit.bench.test_virtual_driver import run
from vocabulary import INF, Call, GateEvent
from workloads.session import Program, Session, TimedOut

Make = Callable[[Session], Program]


def agent(calls: int = 1, tool: float = 0.0, patience: float | None = None) -> Make:
    """Calls of 16 + 4 tokens (4 s), each followed by a tool; a client waits ``patience`` s for a reply."""

    async def program(s: Session) -> None:
        for _ in range(calls):

            async def ask() -> None:
                await s.call(16, output=4)

            try:
                await (s.timeout(patience, ask()) if patience else ask())
            except TimedOut:
                return
            if tool:
                await s.tool("bash", tool)

    return program


def test_a_held_call_waits_at_the_door_and_that_is_its_wait() -> None:
    sink, end = run(agent(calls=2, tool=3.0), agent(), times=[0.0, 1.0], gate=ProgramCap(programs=1))
    first = [row for row in sink.calls if row.call.program == 0]
    (second,) = [row for row in sink.calls if row.call.program == 1]
    over = next(row.t_end for row in sink.programs if row.program == 0)
    assert over >= first[-1].t_end + 3.0
    assert second.t_arrive == 1.0
    assert second.hold_s == over - 1.0
    assert second.wait_s >= second.hold_s
    assert second.t_end - second.t_arrive == second.wait_s + second.prefill_s + second.decode_s
    assert end.calls == 3


class Scripted:
    """Holds program 1 until ``until``, and says what it did."""

    name, places, counts = "scripted", True, True

    def __init__(self, until: float = 5.0, engine: int | None = 1) -> None:
        self.until, self.engine = until, engine
        self.waiting = False
        self.told: list[tuple[Any, ...]] = []
        self.events: list[GateEvent] = []

    def request(self, call: Call, engines: Any, now: float) -> bool:
        self.told.append(("request", call.program, now))
        if call.program != 1 or now >= self.until:
            return True
        self.waiting = True
        self.events.append(GateEvent(now, 1, -1, "hold", "test", call.prompt_tokens))
        return False

    def place(self, call: Call, engines: Any, now: float) -> int:
        return 0

    def count(self, call: Call, tokens: int | None, now: float) -> None:
        self.told.append(("count", call.program, tokens))

    def finish(self, call: Call, usage: Any, now: float) -> None:
        self.told.append(("finish", call.program, usage))

    def abort(self, call: Call, usage: Any, now: float) -> None:
        self.told.append(("abort", call.program, usage))
        self.waiting = False

    def end(self, program: int, now: float) -> None:
        self.told.append(("end", program, now))

    def next_tick(self) -> float:
        return self.until if self.waiting else INF

    def tick(self, engines: Any, now: float) -> list[Pause | Resume]:
        if not self.waiting or now < self.until:
            return []
        self.waiting = False
        return [Pause(0, 0), Resume(1, self.engine)]


def test_the_gates_clock_its_engine_its_books_and_its_rows() -> None:
    gate = Scripted()
    sink, _ = run(agent(), agent(), times=[0.0, 1.0], engines=2, gate=gate)
    zero, one = sorted(sink.calls, key=lambda row: row.call.program)
    assert (zero.engine, one.engine) == (0, 1)
    assert one.hold_s == 4.0
    assert ("count", 0, 20) in gate.told
    kinds = [kind for kind, program, _ in gate.told if program == 1]
    assert kinds == ["request", "count", "finish", "end"]
    assert [(d.time, d.call, d.rule, d.value) for d in sink.decided if d.rule.startswith("gate")] == [
        (1.0, 1, "gate:hold:test", 16.0)
    ]


def test_a_client_that_leaves_the_door_is_never_sent() -> None:
    gate = Scripted(until=50.0)
    sink, _ = run(agent(), agent(patience=2.0), times=[0.0, 1.0], gate=gate)
    (row,) = [row for row in sink.calls if row.call.program == 1]
    assert row.aborted
    assert row.engine == -1
    assert (row.hold_s, row.wait_s, row.t_end) == (2.0, 2.0, 3.0)
    assert [kind for kind, program, _ in gate.told if program == 1] == ["request", "abort", "end"]


def test_a_gate_that_never_lets_go_is_named() -> None:
    with pytest.raises(ProgramError, match="scripted never lets go of 1 programs"):
        run(agent(), agent(), times=[0.0, 1.0], gate=Scripted(until=INF))


class Leased(Scripted):
    """Wants to look again long after everybody has left."""

    def request(self, call: Call, engines: Any, now: float) -> bool:
        return True

    def next_tick(self) -> float:
        return 900.0


def test_the_run_ends_with_its_last_program() -> None:
    sink, end = run(agent(patience=500.0), times=[0.0], gate=Leased())
    assert end.time == sink.programs[0].t_end == sink.samples[-1].time < 10.0


class Remembers:
    """Keeps everything for an hour, and notes what it is told."""

    name, watches = "remembers", True

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def look(self, view: Any, waiting_tokens: int, now: float) -> None:
        self.told.append(("look", view.id))

    def idle(self, away: Any, now: float) -> float:
        self.told.append(("idle", away.program, away.tool, away.tokens, away.engine, now))
        return now + 3600.0

    def victims(self, candidates: Any, now: float) -> Any:
        return candidates

    def called(self, program: int, thread: str, now: float) -> None:
        self.told.append(("called", program, now))

    def back(self, program: int, thread: str, cached: int, prompt: int, now: float) -> None:
        self.told.append(("back", program, cached, prompt, now))

    def end(self, program: int, now: float) -> None:
        self.told.append(("end", program))


def test_retention_is_asked_when_the_tool_begins_and_told_when_it_is_over() -> None:
    retention = Remembers()
    _, end = run(agent(calls=2, tool=3.0), times=[0.0], retention=retention, retains=True)
    first = ("idle", 0, "bash", 20, 0, 4.0)
    assert retention.told[:2] == [("look", 0), first]
    assert retention.told[2:4] == [("called", 0, 7.0), ("back", 0, 16, 36, 7.0)]
    assert retention.told[-1] == ("end", 0)
    assert (end.said["kept"]["pinned"], end.said["kept"]["hits"]) == (2, 1)


def test_what_is_kept_where_a_thread_no_longer_is_is_let_go() -> None:
    seen: list[int] = []

    class Counting(Remembers):
        def victims(self, candidates: Any, now: float) -> Any:
            seen.append(len(candidates))
            return candidates

    _, end = run(
        agent(calls=3, tool=1.0),
        times=[0.0],
        engines=2,
        router=RoundRobin(),
        retention=Counting(),
        retains=True,
    )
    assert end.said["kept"]["pinned"] == 3
    assert end.said["kept"]["released"] >= 2


class PausesAtTheEnd(Scripted):
    """Lets everybody in, and pauses program 0 when its first turn is over; its KV is to go."""

    paused = False

    def request(self, call: Call, engines: Any, now: float) -> bool:
        return True

    def next_tick(self) -> float:
        return INF

    def tick(self, engines: Any, now: float) -> list[Pause | Resume]:
        if self.paused or not any(kind == "finish" for kind, *_ in self.told):
            return []
        self.paused = True
        return [Pause(0, 0, frees_kv=True)]


def test_kv_that_a_pause_frees_is_not_kept_again() -> None:
    retention = Remembers()
    _, end = run(
        agent(calls=2, tool=3.0), times=[0.0], gate=PausesAtTheEnd(), retention=retention, retains=True
    )
    assert end.said["kept"]["dropped_blocks"] == 1
    assert [what[0] for what in retention.told if what[0] == "idle"] == ["idle"]  # after the second call only


def test_a_call_given_up_at_the_door_leaves_nothing_with_the_keeper() -> None:
    class Later(Scripted):
        def request(self, call: Call, engines: Any, now: float) -> bool:
            self.waiting = call.index > 0
            return not self.waiting

        def next_tick(self) -> float:
            return INF

    retention = Remembers()
    sink, _ = run(
        agent(calls=2, tool=3.0, patience=10.0), times=[0.0], gate=Later(), retention=retention, retains=True
    )
    assert [row.aborted for row in sink.calls] == [False, True]
    assert [what[0] for what in retention.told] == ["look", "idle", "called", "end"]
