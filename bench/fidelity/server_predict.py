"""What the simulator says a run of parts d and e will be: same programs, arrivals, scheduler and limits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import replace
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
    programs: Sequence[ProgramSpec], times: Sequence[float], lag_s: float,
) -> list[Call]:  # fmt: skip
    """The calls of a simulated run, as a log of the server would have them. ``lag_s``: what passes between
    a call's end and the next one's arrival beside tools and people: the way to the client and back."""
    knobs = {f"scheduler.{name}": value for name, value in setup.knobs(scheduler).items()}
    spec = load_system("vllm-opt", scheduler=scheduler, knobs=knobs)
    table, sink = build_table(spec), MemorySink()
    latency = latency_for(MODEL, GPU, calibration=calibration)
    config = replace(setup.engine(), record_steps=True)
    engine = SimEngine(0, config, build_scheduler(spec, table), latency)
    drive(
        [slowed(program, lag_s) for program in programs],
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


def slowed(spec: ProgramSpec, seconds: float) -> ProgramSpec:
    """The same program, with ``seconds`` before each of its calls but the first."""
    return replace(spec, start=lambda session: _slowed(spec.start(session), seconds, _Called()))


class _Called:
    """Whether a program has made its first call."""

    yet = False


class _Passed:
    """An effect handed on to the driver as it is."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect

    def __await__(self) -> Generator[Effect, Any, Any]:
        return (yield self._effect)


async def _slowed(program: Program, seconds: float, called: _Called) -> Any:
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
                if called.yet:
                    await ThinkEffect(seconds)
                called.yet = True
            case JoinEffect():
                effect.programs = [_slowed(one, seconds, called) for one in effect.programs]
            case SpawnEffect() | TimeoutEffect():
                effect.program = _slowed(effect.program, seconds, called)
        try:
            resume, value = program.send, await _Passed(effect)
        except (TimedOut, Cancelled) as error:
            resume, value = program.throw, error
