"""What the simulator says a run of parts d and e will be: same programs, arrivals, scheduler and limits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from bench.drivers.virtual import drive
from bench.fidelity.server_calls import Call, simulated
from bench.fidelity.server_setup import GPU, MODEL, Setup
from bench.records import MemorySink
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.sim import SimEngine
from systems.latency.calibration import Calibration
from systems.latency.catalog import latency_for
from vocabulary import Step
from workloads.base import ProgramSpec
from workloads.keys import key_of
from workloads.session import (
    CallEffect,
    Cancelled,
    Effect,
    JoinEffect,
    Program,
    SpawnEffect,
    ThinkEffect,
    TimedOut,
    TimeoutEffect,
)


def predict(
    setup: Setup, scheduler: str, calibration: Calibration,
    programs: Sequence[ProgramSpec], times: Sequence[float], lag_s: float, seed: int = 0,
) -> list[Call]:  # fmt: skip
    """The calls of a simulated run, as a log of the server would have them. ``lag_s``: what passes between
    a call's end and the next one's arrival beside tools and people: the way to the client and back. Each
    call has its own between half and one and a half of it, drawn by ``seed``."""
    knobs = {f"scheduler.{name}": value for name, value in setup.knobs(scheduler).items()}
    spec = load_system("vllm-opt", scheduler=scheduler, knobs=knobs)
    table, sink = build_table(spec), MemorySink()
    latency = latency_for(MODEL, GPU, calibration=calibration)
    config = replace(setup.engine(), record_steps=True)
    engine = SimEngine(0, config, build_scheduler(spec, table), latency)
    drive(
        [slowed(program, lag_s, seed) for program in programs],
        times=times,
        engines=[engine],
        router=build_router(spec),
        table=table,
        sink=sink,
    )
    return at_boundaries(simulated(sink), engine.steps)


def at_boundaries(calls: Sequence[Call], steps: Sequence[Step]) -> list[Call]:
    """The calls with arrivals as vLLM sees them: its engine takes in what came only between two steps."""
    starts = [step.start for step in steps]
    found = []
    for call in calls:
        i = bisect_left(starts, call.t_arrive) - 1  # the last step that began before
        end = steps[i].start + steps[i].seconds if i >= 0 else 0.0
        seen = max(call.t_arrive, end)
        found.append(call._replace(t_arrive=seen, wait_s=call.wait_s - (seen - call.t_arrive)))
    return found


def slowed(spec: ProgramSpec, seconds: float, seed: int = 0) -> ProgramSpec:
    """The same program, with about ``seconds`` before each of its calls; before the first, at most half."""
    return replace(spec, start=lambda session: _slowed(spec.start(session), _Lags(seconds, seed, spec.key)))


class _Lags:
    """Draws lags: the program's own stream, in the order of its calls."""

    def __init__(self, seconds: float, seed: int, key: int) -> None:
        self._seconds = seconds
        self._random = Random(key_of("lag", seed, key))
        self._first = True

    def next(self) -> float:
        """Seconds between half and one and a half of the mean; the first, which only shifts an arrival,
        between 0 and a half."""
        if self._first:
            self._first = False
            return self._seconds * self._random.uniform(0.0, 0.5)
        return self._seconds * self._random.uniform(0.5, 1.5)


class _Passed:
    """An effect handed on to the driver as it is."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect

    def __await__(self) -> Generator[Effect, Any, Any]:
        return (yield self._effect)


async def _slowed(program: Program, lags: _Lags) -> Any:
    """Runs ``program`` and hands its effects on; programs inside them are slowed, too."""
    resume: Any = program.send
    value: Any = None
    while True:
        try:
            effect = resume(value)
        except StopIteration as stop:
            return stop.value
        match effect:
            case CallEffect():
                await ThinkEffect(lags.next())
            case JoinEffect():
                effect.programs = [_slowed(one, lags) for one in effect.programs]
            case SpawnEffect() | TimeoutEffect():
                effect.program = _slowed(effect.program, lags)
        try:
            resume, value = program.send, await _Passed(effect)
        except (TimedOut, Cancelled) as error:
            resume, value = program.throw, error
