"""What schedulers and client wrote down, as rows on one clock."""

import asyncio
import math

import pytest

from bench.drivers.audit import Audit
from bench.drivers.calls import Response
from bench.drivers.live import drive_live
from bench.drivers.live_records import Leg, LiveCall, LiveProgram, LiveRun
from bench.drivers.token_ids import TokenIds
from bench.live.lag import lag
from bench.live.logs import EngineLog
from bench.live.rows import rows_of, totals
from vocabulary import GRID, on_grid
from workloads.base import ProgramSpec
from workloads.session import TimedOut

HEAD = {"origin_monotonic": 100.0, "block_size": 32, "kv_blocks": 10, "max_model_len": 100}


def asked(program, index, send, last, thread="", outcome="finished", prompt=40, tokens=(1, 2)):
    name = f"r.{program}.{thread.replace('.', '_')}.{index}"
    first = math.nan if outcome == "cut" else last
    return LiveCall(program, thread, index, name, send, send, send, first, last, prompt, tokens, outcome)


def row(arrive, first_sched, first_token, end, **changes):
    began, token = (
        (end if first_sched is None else first_sched),
        (end if first_token is None else first_token),
    )
    return {
        "t_arrive": arrive, "t_first_sched": first_sched, "t_first_token": first_token, "t_end": end,
        "output_tokens": 2, "cached_tokens": 0, "prefill_tokens": 40, "reprefill_tokens": 0, "swap_s": 0.0,
        "prefill_s": token - began, "reprefill_s": 0.0, "decode_s": end - token,
        "wait_s": began - arrive, "served": 2.0, "steps": 2, "preemptions": 0, "demotions": 0,
        "promotions": 0, "level": 0, "aborted": False, **changes,
    }  # fmt: skip


def live_run(programs, calls, origin=150.0):
    return LiveRun("r", 0.0, 9.0, programs, calls, Audit.of([], [], 0.0, 1), origin)


def test_times_of_both_engines_come_on_the_runs_clock():
    """The run began at 150 s; one engine's clock was 0 at 100, the other's at 140."""
    calls = [asked(0, 0, 1.0, 2.5), asked(0, 1, 3.0, 4.5)]
    program = LiveProgram(
        0, "test", 0.5, 1.0, 4.75, "finished", 2, path=(Leg("r.0..1"), Leg("", 0.25), Leg("r.0..0"))
    )
    first = EngineLog(0, {"0..0": row(51.0, 51.25, 51.5, 52.0)}, [], HEAD)
    second = EngineLog(1, {"0..1": row(13.25, 13.25, 13.5, 14.0)}, [], HEAD | {"origin_monotonic": 140.0})
    found = rows_of(live_run([program], calls), [first, second])
    assert [(c.engine, c.t_arrive, c.t_end, c.call.seq) for c in found.calls] == [
        (0, 1.0, 2.0, 1),
        (1, 3.25, 4.0, 2),
    ]
    (of,) = found.programs
    assert (of.t_arrive, of.t_end, of.wait_s, of.exec_s) == (0.5, 4.75, 0.25, 1.5)
    assert (of.cp_wait_s, of.cp_prefill_s, of.cp_decode_s, of.cp_tool_s) == (0.25, 0.5, 1.0, 0.25)
    assert of.cp_overhead_s == 4.25 - 2.0
    assert lag(live_run([program], calls), [first, second]) == pytest.approx(0.025 + 0.5)


def test_sums_are_exact_whatever_the_offset():
    origin = 1234.000123456789
    engine = origin - 17.123456789
    times = [on_grid(t) for t in (17.3, 17.4, 17.5, 17.7)]
    log = EngineLog(0, {"0..0": row(*times)}, [], HEAD | {"origin_monotonic": engine})
    program = LiveProgram(0, "test", 0.1, 0.1, 0.9, "finished", 1, path=(Leg("r.0..0"),))
    found = rows_of(live_run([program], [asked(0, 0, 0.11, 0.85)], origin), [log])
    (call,), (of,) = found.calls, found.programs
    assert call.prefill_s + call.decode_s + call.wait_s == call.t_end - call.t_arrive
    assert (call.t_arrive / GRID).is_integer()
    assert of.cp_wait_s + of.cp_prefill_s + of.cp_decode_s + of.cp_overhead_s == of.t_end - of.t_arrive


def test_a_call_that_was_given_up_counts_where_it_came_to_the_engine():
    calls = [asked(0, 0, 1.0, 2.0, outcome="cut", tokens=()), asked(0, 1, 1.0, 2.0, outcome="cut", tokens=())]
    aborted = row(51.0, None, None, 52.0, aborted=True, steps=0)
    program = LiveProgram(0, "test", 0.5, 1.0, 3.0, "abandoned", 2)
    found = rows_of(live_run([program], calls), [EngineLog(0, {"0..0": aborted}, [], HEAD)])
    assert [(c.call.index, c.aborted, c.t_first_sched) for c in found.calls] == [(0, True, math.inf)]
    assert (found.programs[0].calls, found.programs[0].outcome, found.programs[0].wait_s) == (
        1,
        "abandoned",
        1.0,
    )
    assert found.totals[0]["calls_aborted"] == 1


def test_totals_are_the_steps_own():
    """a: 40 tokens, 32 of them cached, displaced while it decodes, computed again; b: evicted."""
    lines = [
        {"start": 0.0, "end": 1.0, "kv_used": 2, "evicted": 3, "calls": [["a", 32, 8, 1]], "preempted": []},
        {"start": 1.0, "end": 2.0, "kv_used": 3, "evicted": 3, "calls": [["a", 40, 1, 1], ["b", 0, 30, 0]],
         "preempted": []},
        {"start": 2.5, "end": 3.0, "kv_used": 2, "evicted": 4, "calls": [["a", 32, 9, 1]],
         "preempted": ["a", "b"]},
        {"start": 3.0, "end": 4.0, "kv_used": 1, "evicted": 4, "calls": [["a", 41, 1, 1]], "preempted": []},
    ]  # fmt: skip
    log = EngineLog(0, {"0..0": row(0.0, 0.0, 1.0, 4.0)}, lines, HEAD)
    found = totals(log, {"0..0": asked(0, 0, 0.0, 4.0)})
    assert (found["steps"], found["busy_s"], found["hit_tokens"]) == (4, 3.5, 32)
    assert (found["computed_prefill_tokens"], found["decode_tokens"]) == (8 + 30 + 9, 2)
    assert (found["preemptions"], found["displaced"], found["evicted"]) == (2, 1, 1)
    assert found["kv_block_seconds"] == 2 * (2 + 3 + 2 * 0.5 + 1)
    assert found["query_tokens"] == 40


# The path of a program, as the live driver keeps it


class Instant:
    """A client whose replies take ``seconds`` per token."""

    def __init__(self, seconds=0.002):
        self.seconds = seconds

    async def complete(self, request):
        await asyncio.sleep(self.seconds * request.output_tokens)
        tokens = tuple(range(request.output_tokens))
        return Response(tokens, len(request.prompt), len(tokens), 0.0, 0.0, 0.0)


def path_of(start, seconds=0.002):
    spec = ProgramSpec(0, "test", 7, start)
    over = []
    live = asyncio.run(
        drive_live([spec], [0.0], Instant(seconds), TokenIds(100, "x"), run="r", over=over.append)
    )
    assert over == ["r.0"]
    return live.programs[0]


def names(program):
    return [leg.name for leg in reversed(program.path) if leg.name]


def test_at_a_join_the_path_is_that_of_the_branch_that_ended_last():
    async def branch(s, tokens):
        await s.call(new=5, output=tokens)

    async def root(s):
        await s.call(new=5, output=1)
        await s.tool("search", 0.01)
        await s.join(branch(s.fork(), 2), branch(s.fork(), 20), branch(s.fork(), 3))
        await s.think(0.005)
        await s.call(new=5, output=1)

    program = path_of(root)
    assert names(program) == ["r.0..0", "r.0.1.0", "r.0..1"]
    assert program.threads == 4
    assert sum(leg.tool_s for leg in program.path) == pytest.approx(0.01, abs=1e-3)
    assert sum(leg.think_s for leg in program.path) == pytest.approx(0.005, abs=1e-3)
    assert program.tool_s <= 0.01


def test_what_is_spawned_may_be_the_last():
    async def side(s):
        await s.call(new=5, output=40)

    async def root(s):
        await s.call(new=5, output=1)
        await s.spawn(side(s.fork(detached=True)))
        await s.call(new=5, output=1)

    assert names(path_of(root)) == ["r.0..0", "r.0.0.0"]


def test_what_timed_out_is_not_on_the_path():
    async def slow(s):
        await s.call(new=5, output=500)

    async def root(s):
        await s.call(new=5, output=1)
        try:
            await s.timeout(0.02, slow(s.fork()))
        except TimedOut:
            await s.call(new=5, output=1)

    program = path_of(root)
    assert names(program) == ["r.0..0", "r.0..1"]
    assert program.calls == 3
