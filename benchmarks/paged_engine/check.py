"""Does the paged engine compute the right thing? Every call against the same model without any engine.

Forks, turns, shared and cut prompts under tight KV; every policy, with and without the prefix cache,
recompute and hold. Greedy replies must be the same in all of them, and each must be the most probable
token of a plain forward pass over the same text, with the same log-probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from bench.drivers.virtual import drive
from bench.records import MemorySink
from benchmarks.paged_engine.engine import Execution, PagedEngine, Served
from benchmarks.paged_engine.model import SHAPES, Llama
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.sim import SimEngine
from systems.latency.calibration import LinearLatency
from vocabulary import EngineConfig, Segment, on_grid
from workloads.base import ProgramSpec
from workloads.keys import mix
from workloads.random_streams import stream
from workloads.session import Session

Knobs = dict[str, object]
BOUNDS: Knobs = {"scheduler.bounds": "6,24"}
POLICIES: dict[str, Knobs] = {
    "fcfs": {}, "round-robin": {"scheduler.quantum": "5"}, "plas": BOUNDS, "atlas": BOUNDS, "mlfq": BOUNDS,
}  # fmt: skip
MEMORY = (("recompute", True), ("recompute", False), ("hold", True))
"""Preemption, and whether there is a prefix cache."""
KV_BLOCKS = 20
"""Room for two calls or three: calls are preempted under every policy."""
CLOCK = LinearLatency("check", {"step": 8.0, "token": 0.2})
"""Seconds are told here, not measured, so that the schedules are the same everywhere."""
SYSTEM: Segment = (1, 40)
"""A prompt that all programs share."""


@dataclass
class Verdict:
    """How one run compares with plain forward passes. ``wrong``: reply tokens that are not the most probable
    ones there, by more than a tolerance; ``delta``: the largest difference of log-probabilities."""

    name: str
    preemptions: int
    hit_tokens: int
    calls: int = 0
    tokens: int = 0
    wrong: int = 0
    delta: float = 0.0
    again: int = 0


def check(
    device: str = "cpu", policies: Sequence[str] = tuple(POLICIES), engine: type[PagedEngine] = PagedEngine
) -> list[Verdict]:
    """Every policy, in float32 on the tiny model, seconds told by ``CLOCK``.

    Raises AssertionError if a reply differs between two of them, or the books from the simulator's.
    """
    model = Llama(SHAPES["tiny"], KV_BLOCKS, seed=7, device=device)
    specs = [ProgramSpec(i, "check", mix(11, i), partial(_program, i)) for i in range(6)]
    verdicts, first = [], None
    for scheduler, (preemption, prefix_cache) in product(policies, MEMORY):
        config = EngineConfig(KV_BLOCKS, 6, 24, 256, prefix_cache, preemption=preemption)
        execution = Execution(model, told=CLOCK)
        log, totals = _serve(specs, scheduler, partial(engine, 0, config), execution)
        simulated, expected = _serve(specs, scheduler, partial(SimEngine, 0, config), CLOCK)
        name = f"{scheduler} {preemption}{'' if prefix_cache else ' no-cache'}"
        for total in expected.keys() - {"kv_block_seconds"}:
            assert totals[total] == expected[total], f"{name}: {total} is not the simulator's"
        assert log.decided == simulated.decided, f"{name}: other decisions than the simulator's"
        verdict = Verdict(name, int(totals["preemptions"]), int(totals["hit_tokens"]))
        verdict.again = sum(timed.again for timed in execution.log)
        compare(model, list(execution.done.values()), verdict)
        verdicts.append(verdict)
        replies = {who: served.tokens[served.prompt :] for who, served in execution.done.items()}
        first = first or replies
        assert replies == first, f"{name}: other replies than {verdicts[0].name}"
    return verdicts


def _serve(
    specs: Sequence[ProgramSpec], scheduler: str, make: Callable[..., Any], clock: Any
) -> tuple[MemorySink, dict[str, float]]:
    spec = load_system("vllm-opt", scheduler=scheduler, knobs=POLICIES[scheduler])
    table, log = build_table(spec), MemorySink()
    engine = make(build_scheduler(spec, table), clock)
    times = [on_grid(0.05 * each.index) for each in specs]
    end = drive(specs, times=times, engines=[engine], router=build_router(spec), table=table, sink=log)
    return log, end.engines[0]


def compare(model: Llama, calls: Sequence[Served], verdict: Verdict, tolerance: float = 1e-4) -> None:
    """Hold each reply to one forward pass over its call's whole text."""
    for tokens, prompt, logprobs in calls:
        expected = model.oracle(tokens[:-1])[prompt - 1 :].log_softmax(-1)
        verdict.calls += 1
        for row, token, found in zip(expected, tokens[prompt:], logprobs, strict=True):
            verdict.tokens += 1
            verdict.wrong += float(row.max() - row[token]) > tolerance
            verdict.delta = max(verdict.delta, abs(float(row[token]) - found))


async def _program(number: int, s: Session) -> None:
    """Turns on a shared prompt, then three branches, then a turn on what was before them."""
    draw = stream(s.key, "check")
    s.add(SYSTEM)
    for _ in range(2):
        await s.call(new=1 + draw.below(30), output=1 + draw.below(20))
    forks = [s.fork() for _ in range(3)]
    lengths = [1 + draw.below(40) for _ in forks]
    await s.join(*(_branch(fork, length) for fork, length in zip(forks, lengths, strict=True)))
    *before, (reply, length) = s.context
    s.edit([*before, (reply, (length + 1) // 2)])
    await s.call(new=5 + number, output=12)


async def _branch(s: Session, output: int) -> None:
    await s.call(new=3, output=output)
