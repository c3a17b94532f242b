"""The door with a gate that does as it is told, programs and outbox: order, ticks, and no leaks."""

import asyncio

import pytest

from systems.gateway.door import Door
from systems.gateway.options import Target
from systems.gateway.outbox import Outbox
from systems.gateway.programs import Programs
from systems.gateway.workers import Workers
from systems.process_table import ProcessTable
from systems.protocols import Resume
from systems.routers.round_robin import RoundRobin
from systems.vllm_host.control import Channel
from tests.unit.systems.gateway.engines import on_loop, until
from vocabulary import INF, Call, Usage

TARGETS = [Target("http://127.0.0.1:1"), Target("http://127.0.0.1:2")]


class Gate:
    """Holds everybody; ``resumes`` is what the next tick says, ``due`` when it wants one by itself."""

    name = "told"

    def __init__(self):
        self.resumes, self.due, self.heard = [], INF, []

    def request(self, call, engines, now):
        self.heard.append(("request", call.seq))
        return False

    def finish(self, call, usage, now):
        self.heard.append(("finish", call.seq))

    def abort(self, call, usage, now):
        self.heard.append(("abort", call.seq, usage.served))

    def end(self, program, now):
        self.heard.append(("end", program))

    def next_tick(self):
        return self.due

    def tick(self, engines, now):
        found, self.resumes = self.resumes, []
        self.due = INF
        return found


def made(gate):
    loop = asyncio.get_running_loop()
    workers = Workers(TARGETS, loop.time)
    for worker in workers:
        workers.up(worker)
    return Door(gate, RoundRobin(), workers, loop.time), workers


def call(seq, program=0):
    return Call(seq, program, "", 0, 10)


@on_loop
async def test_a_resume_lets_all_of_a_program_go_in_order_and_may_name_the_engine():
    gate = Gate()
    door, _ = made(gate)
    order = []

    async def enter(seq, program):
        order.append((seq, await door.enter(call(seq, program), lambda: None, 5.0)))

    tasks = [asyncio.create_task(enter(seq, seq % 2)) for seq in range(5)]
    await asyncio.sleep(0)
    assert len(door) == 5
    gate.resumes = [Resume(1, 1), Resume(0)]
    door.finish(call(9), Usage(1.0, 1.0, 0.0))
    await asyncio.gather(*tasks)
    assert order == [(1, 1), (3, 1), (0, None), (2, None), (4, None)]
    assert len(door) == 0


@on_loop
async def test_a_gate_is_asked_when_it_wanted_to_be():
    gate = Gate()
    door, _ = made(gate)
    gate.due = asyncio.get_running_loop().time() + 0.05
    task = asyncio.create_task(door.enter(call(0), lambda: None, 5.0))
    await asyncio.sleep(0)
    gate.resumes = [Resume(0)]
    assert await asyncio.wait_for(task, 1.0) is None
    door.close()


@on_loop
async def test_a_closed_door_has_no_timer_though_programs_still_end():
    gate = Gate()
    door, _ = made(gate)
    gate.due = asyncio.get_running_loop().time() + 0.02
    door.finish(call(0), Usage(1.0, 1.0, 0.0))
    door.close()
    gate.due = asyncio.get_running_loop().time() + 0.02
    door.end(0)
    heard, gate.tick = len(gate.heard), None  # it would raise
    await asyncio.sleep(0.04)
    assert (len(gate.heard), door._timer) == (heard, None)


@on_loop
async def test_a_held_call_that_is_cancelled_or_late_is_aborted_at_the_gate():
    gate = Gate()
    door, _ = made(gate)
    with pytest.raises(TimeoutError):
        await door.enter(call(0), lambda: None, 0.02)
    task = asyncio.create_task(door.enter(call(1), lambda: None, 5.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one for one in gate.heard if one[0] == "abort"] == [("abort", 0, 0.0), ("abort", 1, 0.0)]
    assert len(door) == 0


@on_loop
async def test_a_lost_engine_is_no_choice_and_without_any_there_is_none():
    door, workers = made(Gate())
    assert {door.route(call(i), {0}) for i in range(3)} == {1}
    workers.down(workers[1], "gone")
    assert door.route(call(9), {0}) is None
    assert door.route(call(9)) == 0


def test_a_programs_row_outlives_its_end_as_long_as_its_calls():
    told = []
    programs = Programs(
        ProcessTable("sum"), lambda p: told.append(p.name), lambda p, why: told.append((p.name, why))
    )
    row = programs.start("p", 1.0)
    programs.hold(row, 1.0)
    programs.hold(row, 1.0)
    assert row.state == "held"
    snap = programs.send(row, 1)
    assert (row.state, row.engine, row.engines) == ("reasoning", 1, {1})
    assert programs.end(row, "ended")
    assert not programs.end(row, "ended")
    assert programs.start("p", 2.0) is not row
    programs.charge(row, snap, Usage(3.0, 1.0, 0.5), 4.0)
    assert (row.state, told) == ("held", ["p", "p"])
    programs.give_up(row, 2.0, 5.0)
    assert told[-1] == ("p", "ended")
    assert (row.service, row.exec_s, row.wait) == (3.0, 1.0, 2.5)
    assert (len(programs), len(programs.table)) == (1, 1)


def test_leases_end_programs_that_are_idle_the_oldest_first():
    programs = Programs(ProcessTable("sum"))
    for number in range(5):
        programs.start(f"p{number}", float(number))
    busy = programs.named("p1")
    programs.hold(busy, 1.0)
    programs.start("p0", 6.0)
    programs.expire(4.0, 7.5)
    assert [row.name for row in programs] == ["p4", "p0", "p1"]
    programs.give_up(busy, 0.0, 8.0)
    programs.expire(4.0, 20.0)
    assert (len(programs), len(programs.table)) == (0, 0)


def test_the_longest_path_counts_under_the_max_rule_from_where_a_call_began():
    programs = Programs(ProcessTable("max"))
    row = programs.start("p", 0.0)
    programs.hold(row, 0.0)
    programs.hold(row, 0.0)
    first, second = programs.send(row, 0), programs.send(row, 1)
    programs.charge(row, first, Usage(5.0, 1.0, 0.0), 1.0)
    programs.charge(row, second, Usage(3.0, 1.0, 0.0), 1.0)
    assert row.service == 5.0


@on_loop
async def test_ends_reach_an_engine_that_takes_a_few_at_a_time_and_one_that_is_not_there_yet(tmp_path):
    path = str(tmp_path / "control.sock")
    workers = Workers([Target("http://127.0.0.1:1", control=path), Target("http://127.0.0.1:2")], lambda: 0.0)
    outbox = Outbox(workers)
    outbox.end("early", 0)
    outbox.end("elsewhere", 1)
    assert len(outbox) == 1
    heard = []
    channel = Channel(path)

    def handle(message):
        heard.append(message["program"])
        return {}

    for number in range(1000):
        outbox.end(str(number), 0)
    assert 0 < len(outbox) < 1001
    while len(outbox):
        channel.serve(handle)
        outbox.flush()
    await until(lambda: channel.serve(handle) or len(heard) == 1001)
    assert heard == ["early", *map(str, range(1000))]
    channel.close()
    outbox.end("late", 0)
    again = Channel(path)
    outbox.flush()
    again.serve(handle)
    assert heard[-1] == "late"
    outbox.close()
    again.close()
