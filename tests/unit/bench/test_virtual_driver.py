"""The virtual-time driver: what each effect does to clock, rows and engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.drivers.cores import CorePool
from bench.drivers.virtual import ProgramError, drive
from bench.records import MemorySink, RunEnd
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.sim import SimEngine
from systems.process_table import ProcessTable
from tests.latency_models import BlockTransfer, ConstantLatency
from tests.scenarios import RoundRobin
from tests.strategies import Ladder, LadderKnobs
from vocabulary import INF, EngineConfig
from workloads.base import ProgramSpec
from workloads.session import Program, Session, TimedOut

Make = Callable[[Session], Program]


def run(*programs: Make, times: list[float] | None = None, **options: Any) -> tuple[MemorySink, RunEnd]:
    """Every step takes 1 s, so a call of n tokens takes n s when nothing is in its way."""
    spec = load_system("vllm-opt")
    table, sink = build_table(spec), MemorySink()
    count, router = options.pop("engines", 1), options.pop("router", None) or build_router(spec)
    config = EngineConfig(
        kv_blocks=1000, max_num_seqs=options.pop("seqs", 64), retains=options.pop("retains", False)
    )
    engines = [SimEngine(i, config, build_scheduler(spec, table), ConstantLatency(1.0)) for i in range(count)]
    specs = [ProgramSpec(i, "test", 1000 + i, make) for i, make in enumerate(programs)]
    if times is None and "concurrency" not in options:
        times = [0.0] * len(programs)
    end = drive(specs, times=times, engines=engines, router=router, table=table, sink=sink, **options)
    assert len(table) == 0, "a program is still in the process table"
    assert all(engine.clock() == INF for engine in engines), "a call is still in an engine"
    for row in sink.programs:
        parts = (row.cp_wait_s, row.cp_prefill_s, row.cp_reprefill_s, row.cp_decode_s, row.cp_swap_s,
                 row.cp_tool_s, row.cp_think_s, row.cp_overhead_s)  # fmt: skip
        assert sum(parts) == row.t_end - row.t_arrive
    return sink, end


def one(sink: MemorySink) -> Any:
    assert len(sink.programs) == 1
    return sink.programs[0]


def test_calls_tools_and_people_follow_one_another() -> None:
    async def program(s: Session) -> None:
        reply = await s.call(new=10, output=3)
        assert reply.output_tokens == 3
        await s.tool("search", 2.5)
        await s.think(4.0)
        await s.call(new=5, output=2)

    sink, end = run(program, times=[1.0])
    row = one(sink)
    assert (row.t_arrive, row.t_end, row.outcome) == (1.0, 12.5, "finished")
    assert (row.cp_tool_s, row.cp_think_s, row.cp_overhead_s) == (2.5, 4.0, 0.0)
    assert (row.calls, row.output_tokens, row.prompt_tokens) == (2, 5, 10 + 18)
    assert end.time == 12.5
    assert end.calls == 2


def test_a_join_waits_for_the_slowest_and_takes_its_path() -> None:
    async def branch(s: Session, tokens: int, tool: float) -> int:
        await s.call(new=1, output=tokens)
        await s.tool("t", tool)
        return tokens

    async def program(s: Session) -> None:
        got = await s.join(branch(s.fork(), 2, 1.0), branch(s.fork(), 5, 0.0), branch(s.fork(), 1, 9.0))
        assert got == [2, 5, 1]
        assert s.parents == (("0", 0), ("1", 0), ("2", 0))
        assert await s.join() == []
        await s.call(new=1, output=1)

    row = one(run(program)[0])
    assert row.t_end == 11.0
    assert row.cp_tool_s == 9.0
    assert row.tool_s == 10.0
    assert row.threads == 4


def test_a_spawned_task_is_not_waited_for_but_belongs_to_the_program() -> None:
    async def aside(s: Session) -> None:
        await s.call(new=1, output=20)

    async def program(s: Session) -> None:
        task = await s.spawn(aside(s.fork(detached=True)))
        await s.call(new=1, output=2)
        assert not task.done

    row = one(run(program)[0])
    assert row.t_end == 20.0
    assert row.cp_decode_s + row.cp_prefill_s == 20.0


def test_a_cancelled_task_is_aborted_at_the_next_boundary_and_charged() -> None:
    seen = []

    async def aside(s: Session) -> None:
        try:
            await s.call(new=1, output=100)
        finally:
            seen.append("cleaned up")

    async def program(s: Session) -> None:
        task = await s.spawn(aside(s.fork(detached=True)))
        await s.tool("t", 3.25)
        await s.cancel(task)
        assert task.done

    sink, _ = run(program)
    aborted = [row for row in sink.calls if row.aborted]
    assert [(row.t_end, row.output_tokens) for row in aborted] == [(4.0, 4)]
    assert seen == ["cleaned up"]
    assert one(sink).output_tokens == 4


def test_a_timeout_raises_in_the_program_and_a_timely_result_comes_through() -> None:
    async def ask(s: Session, tokens: int) -> int:
        return (await s.call(new=1, output=tokens)).output_tokens

    async def program(s: Session) -> None:
        assert await s.timeout(10.0, ask(s.fork(), 4)) == 4
        with pytest.raises(TimedOut):
            await s.timeout(2.5, ask(s.fork(), 50))
        await s.tool("t", 1.0)

    sink, _ = run(program)
    assert one(sink).t_end == 7.5
    assert [row.t_end for row in sink.calls if row.aborted] == [7.0]


def test_a_timeout_nobody_catches_is_an_error_that_names_the_program() -> None:
    async def ask(s: Session) -> None:
        await s.call(new=1, output=50)

    async def program(s: Session) -> None:
        await s.timeout(2.0, ask(s.fork()))

    with pytest.raises(ProgramError, match="program 0"):
        run(program)


def test_a_client_that_leaves_takes_all_its_calls_along() -> None:
    async def leave(s: Session) -> None:
        await s.tool("patience", 2.0)
        await s.abandon()

    async def work(s: Session) -> None:
        await s.call(new=1, output=50)
        raise AssertionError("not reached")

    async def program(s: Session) -> None:
        await s.spawn(work(s.fork(detached=True)))
        await s.join(leave(s.fork()), work(s.fork()))
        raise AssertionError("not reached")

    sink, _ = run(program)
    row = one(sink)
    assert (row.outcome, row.t_end) == ("abandoned", 2.0)
    assert [call.aborted for call in sink.calls] == [True, True]


def test_a_program_that_raises_is_named() -> None:
    async def program(s: Session) -> None:
        await s.call(new=1, output=1)
        raise KeyError("my field")

    with pytest.raises(ProgramError, match=r"program 0 \(test\) raised KeyError: 'my field'"):
        run(program)


def test_awaiting_a_foreign_thing_is_an_error() -> None:
    class Foreign:
        def __await__(self) -> Any:
            yield "something"

    async def program(s: Session) -> None:
        await Foreign()

    with pytest.raises(ProgramError, match="await effects of its session only"):
        run(program)


def test_a_prompt_that_never_fits_names_program_and_limit() -> None:
    async def program(s: Session) -> None:
        await s.call(new=20_000, output=1)

    with pytest.raises(ProgramError, match=r"program 0 \(test\).*1250 KV blocks.*1000"):
        run(program)


def test_a_closed_loop_keeps_n_programs() -> None:
    async def program(s: Session) -> None:
        await s.call(new=1, output=4)

    sink, end = run(*[program] * 7, concurrency=3)
    arrivals = sorted(row.t_arrive for row in sink.programs)
    assert arrivals == [0.0, 0.0, 0.0, 4.0, 4.0, 4.0, 8.0]
    assert end.programs == 7


def test_tools_share_the_cores_they_have() -> None:
    async def program(s: Session) -> None:
        await s.tool("compile", 4.0)

    async def longer(s: Session) -> None:
        await s.tool("compile", 6.0)

    ends = {
        cores: [row.t_end for row in run(program, longer, cores=cores)[0].programs] for cores in (1.0, 2.0)
    }
    assert ends[2.0] == [4.0, 6.0]
    assert ends[1.0] == [8.0, 10.0]


def test_processor_sharing_by_hand() -> None:
    pool = CorePool(2)
    assert pool.next_done() == INF
    for name in "abc":
        pool.start(3.0, 0.0, name)
    assert pool.next_done() == 4.5
    ticket = pool.start(1.0, 3.0, "d")  # 2 s each so far; four on two cores from now on
    assert pool.next_done() == 5.0
    pool.cancel(ticket, 4.0)  # .5 s left for a, b, c: 3 on 2 cores
    assert pool.next_done() == pytest.approx(4.75)
    with pytest.raises(ValueError, match="more than 0 cores"):
        CorePool(0)


def test_engines_on_one_clock_serve_calls_in_turn() -> None:
    async def program(s: Session) -> None:
        for _ in range(4):
            await s.call(new=40, output=3)

    sink, end = run(*[program] * 5, times=[0.0, 0.25, 0.5, 0.75, 1.0], engines=3, seqs=2)
    assert {row.engine for row in sink.calls} == {0, 1, 2}
    assert end.calls == 20
    assert sum(stats["calls_finished"] for stats in end.engines) == 20
    assert sorted(row.call.seq for row in sink.calls) == list(range(1, 21))


def test_times_and_concurrency_exclude_each_other() -> None:
    async def program(s: Session) -> None:
        await s.call(new=1, output=1)

    with pytest.raises(ValueError, match="either"):
        run(program, times=[0.0], concurrency=1)


def test_a_call_shows_its_prompt_to_routers_that_read_it_only() -> None:
    class Reader(RoundRobin):
        reads_prompt = True

    async def program(s: Session) -> None:
        await s.call(new=10, output=3)
        await s.call(new=5, output=1)

    sink, _ = run(program, engines=2, router=Reader())
    assert [sum(n for _, n in row.call.prompt) for row in sink.calls] == [10, 18]
    assert sink.calls[1].call.prompt[0] == sink.calls[0].call.prompt[0]
    assert [row.call.prompt for row in run(program, engines=2, router=RoundRobin())[0].calls] == [(), ()]


def test_clairvoyant_schedulers_are_told_the_rest_and_this_calls_share_of_it() -> None:
    async def program(s: Session) -> None:
        await s.call(new=10, output=3)
        await s.call(new=5, output=4)

    sink, _ = run(program, remaining=lambda spec: 7.0)
    assert [(row.call.remaining, row.call.output) for row in sink.calls] == [(7.0, 3), (4.0, 4)]
    assert [row.call.output for row in run(program)[0].calls] == [None, None]


def test_what_swapping_takes_lies_on_the_critical_path() -> None:
    """tests/unit/systems/test_reference_options.py computes the calls by hand."""

    async def long(s: Session) -> None:
        await s.call(new=16, output=6)

    async def short(s: Session) -> None:
        await s.call(new=4, output=3)

    table, sink = ProcessTable(), MemorySink()
    config = EngineConfig(100, max_num_seqs=1, preemption="swap", host_blocks=2)
    policy = Ladder(LadderKnobs(first=(1, 0), quanta=(INF, INF)), table)
    engine = SimEngine(0, config, policy, ConstantLatency(1.0), BlockTransfer(0.25))
    specs = [ProgramSpec(i, "test", 1000 + i, make) for i, make in enumerate((long, short))]
    drive(specs, times=[0.0, 2.0], engines=[engine], router=RoundRobin(), table=table, sink=sink)
    second, first = sink.programs
    assert (first.cp_prefill_s, first.cp_decode_s, first.cp_swap_s, first.cp_wait_s) == (1.0, 5.0, 0.25, 3.5)
    assert (first.exec_s, first.swap_s, first.cp_overhead_s) == (6.25, 0.25, 0.0)
    assert (second.exec_s, second.swap_s, second.cp_swap_s, second.t_end) == (3.5, 0.5, 0.5, 5.5)
