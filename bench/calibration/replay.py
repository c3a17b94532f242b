"""A recording played again on a simulated engine: the same requests at the same times, other step times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.calibration.recordings import Facts, Point, Request
from bench.drivers.virtual import ProgramError, drive
from bench.errors import UsageError
from bench.records import EngineSample, MemorySink
from bench.run import engine_class
from systems.catalog import SystemSpec, build_router, build_scheduler, build_table, load_system
from systems.latency.scaled import ServedModel
from systems.protocols import LatencyModel
from vocabulary import EngineConfig, Finished
from workloads.base import ProgramSpec
from workloads.replay import replay_spec
from workloads.script import CallOp, Script

Times = NDArray[np.float64]
"""TTFT, TPOT and E2E in seconds, a row per request; NaN where there is none."""

SYSTEM = "vllm-opt"
"""First come, first served, chunked prefill: what vLLM does by itself."""


@dataclass(frozen=True)
class Replayed:
    """``calls`` in the order of the requests; ``samples`` of the engine over time; its totals."""

    calls: Sequence[Finished]
    samples: Sequence[EngineSample]
    stats: dict[str, Any]

    def times(self) -> Times:
        """See ``Times``."""
        return np.array([_times(call) for call in self.calls])


def _times(call: Finished) -> tuple[float, float, float]:
    gaps = call.output_tokens - 1
    tpot = (call.t_end - call.t_first_token) / gaps if gaps else np.nan
    return call.t_first_token - call.t_arrive, tpot, call.t_end - call.t_arrive


def replay(
    requests: Sequence[Request],
    engine: EngineConfig,
    latency: LatencyModel,
    *,
    concurrency: int | None = None,
    host: str = "sim",
    sample_s: float = 10.0,
) -> Replayed:
    """Serve the requests, each with a prompt of its own: at their arrivals, or ``concurrency`` at a time.

    ``host``: sim or reference. Raises UsageError for a request that can never fit.
    """
    spec = _system()
    table, sink = build_table(spec), MemorySink()
    start = min((r.arrival for r in requests if r.arrival is not None), default=0.0)
    times = None if concurrency else [(r.arrival or 0.0) - start for r in requests]
    served = engine_class(host)(0, engine, build_scheduler(spec, table), latency)
    try:
        end = drive(
            [_program(i, r) for i, r in enumerate(requests)],
            times=times,
            concurrency=None if concurrency is None else min(concurrency, len(requests)),
            engines=[served],
            router=build_router(spec),
            table=table,
            sink=sink,
            sample_s=sample_s,
        )
    except ProgramError as error:
        raise UsageError(f"a recorded request cannot be served by the simulated engine: {error}") from None
    calls = sorted(sink.calls, key=lambda row: row.call.program)
    return Replayed(calls, sink.samples, end.engines[0])


@cache
def _system() -> SystemSpec:
    return load_system(SYSTEM)


def _program(index: int, r: Request) -> ProgramSpec:
    prompt, reply = 2 * index, 2 * index + 1
    call = CallOp("", 0, (), ((prompt, r.prompt),), reply, r.output, r.prompt)
    return replay_spec(index, "recorded", Script([call]), r.arrival)


def engine_for(latency: ServedModel, facts: Facts, limits: dict[str, int], **more: Any) -> EngineConfig:
    """The engine of a recording: the model's limits, then the recording's, then those that were asked for."""
    known: dict[str, Any] = {"kv_blocks": latency.kv_blocks, "max_model_len": latency.max_model_len}
    try:
        return EngineConfig(
            **known | more | dict(facts.limits) | limits,
            prefix_cache=facts.prefix_cache,
            record_decisions=False,
        )
    except ValueError as error:
        raise UsageError(f"{facts.path}: {error}") from None


def requests_of(point: Point, seed: int = 1) -> list[Request]:
    """The requests of an operating point: lengths drawn as its protocol says, the same for a seed."""
    rnd = Random(f"{seed} {point.isl} {point.osl} {point.concurrency} {point.tp}")

    def length(most: int) -> int:
        return rnd.randint(max(1, int(point.ratio * most)), most)

    return [Request(None, length(point.isl), length(point.osl)) for _ in range(point.prompts)]


def measure(point: Point, engine: EngineConfig, latency: LatencyModel, seed: int = 1) -> Times:
    """Mean TTFT, mean TPOT and mean E2E (s) of the point's loop."""
    played = replay(requests_of(point, seed), engine, latency, concurrency=point.concurrency)
    means: Times = np.nanmean(played.times(), axis=0)
    return means
