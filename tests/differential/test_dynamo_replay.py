"""NVIDIA Dynamo's offline replay, a third implementation of vLLM's rules: the same schedule as ours.

Needs `make dynamo`, or BENCH_DYNAMO_PYTHON. Blocks are short here, so calls are preempted. One thing is
charged differently: Dynamo counts what a preempted call computes again as a prefill up to the end of its
prompt and as a decode beyond; ours counts all of it as a prefill. Here ours charges as Dynamo does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from bench.native import ROOT
from bench.records import MemorySink
from benchmarks import loads, simulator
from benchmarks.replay_ours import FixedTimes, replay, totals
from benchmarks.speed import plan
from systems.engines.request import Request
from systems.engines.sim import SimEngine
from workloads.arrivals import poisson

PYTHON = Path(os.environ.get("BENCH_DYNAMO_PYTHON", ROOT / ".venv-dynamo/bin/python"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs NVIDIA Dynamo (make dynamo)"),
]
GENERATED = (0, -1)
"""Stands among a step's prefills for tokens of a reply that are computed again."""


class DynamoTimes(FixedTimes):
    """Fixed times, where ``GENERATED`` is charged as a decode."""

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        prompts = [p for p in prefills if p != GENERATED]
        return super().step(prompts, n_decode + len(prefills) - len(prompts), sum_ctx)


class Marking(SimEngine):
    """Marks what is computed again beyond the prompt."""

    def schedule_chunk(self, request: Request, chunk: int, prefills: list[tuple[int, int]]) -> None:
        before, prompt = request.computed, request.call.prompt_tokens
        super().schedule_chunk(request, chunk, prefills)
        if before >= prompt:
            prefills[-1] = GENERATED
        elif before + chunk > prompt:
            prefills.append(GENERATED)


def ours(trace: Path, limits: dict[str, int], charged: bool) -> simulator.Found:
    step_s, sink = [simulator.STEP_S] * 2, MemorySink()
    asked = {"scheduler": "fcfs", "step_s": step_s, "engine": limits}
    make = (lambda *a: Marking(*a[:3], DynamoTimes(*step_s))) if charged else partial(SimEngine)
    end, _, _ = replay(loads.read(trace), asked, sink, make)
    return totals(sink.calls, end, True) | {"calls": end.calls, "makespan_s": end.time}


@pytest.mark.parametrize(
    ("programs", "rate", "limits"),
    [
        (100, 2.0, {"kv_blocks": 3000}),
        (100, 2.0, {"kv_blocks": 1500, "max_num_seqs": 32}),
        (60, 5.0, {"kv_blocks": 1300, "max_num_seqs": 64, "max_num_batched_tokens": 256}),
        (60, 5.0, {"kv_blocks": 2000, "max_num_seqs": 16, "max_num_batched_tokens": 8192}),
    ],
)
def test_short_of_blocks(tmp_path: Path, programs: int, rate: float, limits: dict[str, int]) -> None:
    trace, limits = tmp_path / "trace.jsonl", simulator.LIMITS | limits
    loads.write_plans(trace, [plan(i) for i in range(programs)], poisson(rate, programs, 1))
    theirs = simulator.dynamo(PYTHON, trace, False, detail=True, limits=limits)
    assert theirs["preemptions"] > 20
    same, said = simulator.same_work(theirs, ours(trace, limits, charged=True))
    assert same, said
    assert not simulator.same_work(theirs, ours(trace, limits, charged=False))[0], (
        "charged alike: this file is out of date"
    )


def test_speed1_needs_no_such_charge(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    loads.write_plans(trace, [plan(i) for i in range(300)], poisson(0.6, 300, 1))
    theirs = simulator.dynamo(PYTHON, trace, False, detail=True)
    same, said = simulator.same_work(theirs, ours(trace, simulator.LIMITS, charged=False))
    assert same, said
