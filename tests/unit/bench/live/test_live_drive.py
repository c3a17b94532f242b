"""A run whose calls are cut, what else an engine logs meanwhile, and names of runs."""

import json
from contextlib import suppress

import pandas as pd
import pytest

from bench.errors import InvalidRun
from bench.fidelity.server_calls import request_name
from bench.live import books
from bench.live.books import FrontLog
from bench.live.cells import cell
from bench.live.drive import run_name
from bench.live.logs import own_steps
from bench.live.plan import live_plan
from workloads.base import ProgramSpec
from workloads.session import TimedOut


async def long(s):
    await s.call(new=5, output=2000)  # a second of it


async def gives_up(s):
    await s.call(new=40, output=2)
    with suppress(TimedOut):  # a dry run has no clock
        await s.timeout(0.1, long(s.fork()))
    await s.call(new=5, output=2)


async def cancels(s):
    doomed = await s.spawn(long(s.fork(detached=True)))
    await s.tool("wait", 0.1)
    await s.cancel(doomed)
    await s.think(0.01)


async def leaves(s):
    await s.spawn(long(s.fork(detached=True)))
    await s.tool("wait", 0.1)
    await s.abandon()


@pytest.mark.parametrize("client", ["whole", "stream"])
def test_a_run_with_calls_that_are_cut_has_a_log_that_adds_up(stage, config, client):
    plan = live_plan(config(n=3, knobs={"live.front": "none", "live.client": client}))
    programs = [gives_up, cancels, leaves]
    plan.programs.programs = [ProgramSpec(i, "test", 7 + i, start) for i, start in enumerate(programs)]
    plan.times = [0.0, 0.01, 0.02]
    with stage.pool() as pool:
        result = cell(plan, pool)
    assert result.summary["outcomes"] == {"finished": 2, "abandoned": 1}
    (engine,) = stage.engines
    assert (engine.bodies[-1]["prompt"], engine.bodies[-1]["max_tokens"]) == ([1], 1)  # it was nudged
    calls = pd.read_parquet(result.folder / "calls.parquet")
    assert len(calls) - calls.aborted.sum() >= 2
    assert calls.aborted.any()  # but for one that a busy machine closed before it was read
    totals = pd.read_parquet(result.folder / "totals.parquet")
    (steps,) = json.loads((result.folder / "steps.json").read_text())["engines"]
    assert len(steps["rows"]) == totals.steps[0]
    logged = [json.loads(line) for line in engine.steps.read_text().splitlines()]
    assert any(call[0].startswith("cmpl-nudge.") for line in logged[1:] for call in line["calls"])


def test_steps_of_others_do_not_count():
    def line(*calls, preempted=()):
        return {"start": 0.0, "end": 1.0, "calls": [list(call) for call in calls], "preempted": [*preempted]}

    own, other = ("cmpl-r1.0..0-0-ab", 0, 8, 1), ("cmpl-nudge.0..0-0-cd", 0, 1, 1)
    found = own_steps(
        [line(own), line(own, other, preempted=[other[0]]), line(other), line(other, preempted=[own[0]])],
        "r1",
    )
    assert [[call[0] for call in step["calls"]] for step in found] == [[own[0]], [own[0]], []]
    assert [step["preempted"] for step in found] == [[], [], [own[0]]]


def test_no_two_runs_of_a_cell_have_one_name():
    first, second = run_name("0123456789abcdef", 1), run_name("0123456789abcdef", 1)
    assert first != second
    assert request_name(f"cmpl-{first}.3.0_1.2-0-0123abcd") == (first, "3", "0_1", "2")


def left(program, index, run="r"):
    return json.dumps({
        "event": "left", "name": f"{run}.{program}", "thread": "0.1", "index": index, "t_arrive": 1.0,
        "t_admit": 1.0, "t_end": 2.0, "served": 1.0, "source": "log", "seq": index,
    }) + "\n"  # fmt: skip


def test_the_gateways_log_is_complete_when_it_has_every_answered_call(tmp_path, monkeypatch):
    """Calls that were cut have lines, too, and do not stand for others; programs that are over have ended."""
    path = tmp_path / "events.jsonl"
    log = FrontLog(path)
    path.write_text(left(0, 0) + left(0, 1) + left(7, 0, run="other"))
    head, over = '{"event":"log","origin_monotonic":7.5}\n', '{"event": "ended", "name": "r.0", "t": 1.0}\n'
    waited = []

    def sleep(_):
        waited.append(1)
        with path.open("a") as file:
            file.write(over if len(waited) > 1 else left(0, 2))

    with pytest.raises(InvalidRun, match="no first line with origin_monotonic"):
        log.gather("r", {"0.0_1.0", "0.0_1.2"}, sleep=sleep)
    path.write_text(head + left(0, 0) + left(0, 1) + left(7, 0, run="other"))
    waited.clear()
    found = log.gather("r", {"0.0_1.0", "0.0_1.2"}, sleep=sleep)
    assert (found.calls, found.origin) == (3, 7.5)
    assert waited == [1, 1]
    monkeypatch.setattr(books, "PATIENCE_S", 0.0)
    with pytest.raises(InvalidRun, match=r"1 of 1 answered calls are not in .*events.jsonl, 5\.\.0 first"):
        log.gather("r", {"5..0"}, sleep=lambda _: None)
