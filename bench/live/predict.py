"""What the simulator says a live cell will be: same programs, arrivals, policies and limits on ``sim``.

Step times are fitted to steps of other cells of the same workload and machine: those under fcfs with other
seeds, or the pilot's where there are none; never to the cell's own. Two things are taken over from the
engine: calls are taken in between two steps, and prefix hits come in blocks of its own size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bench import metrics
from bench.calibration.steps import StepLog, StepRow, fit_log
from bench.drivers.virtual import drive
from bench.errors import InvalidRun
from bench.eventlog import Tables, from_memory
from bench.fidelity.server_predict import slowed
from bench.live.boundaries import Boundaries
from bench.live.plan import LivePlan
from bench.records import EngineTotals, MemorySink
from bench.run import governing_policies
from systems.catalog import build_router, build_scheduler, build_table
from systems.engines.sim import SimEngine
from systems.latency.calibration import Calibration, LinearModel

ENSEMBLE = 9
"""Simulated runs, with other lags, whose median is the prediction: a millisecond can decide who waits."""
FEWEST = 20
"""Fewer programs have no p95 but their slowest."""
FEWEST_CALLS = 100
"""Fewer calls have no p99."""
_BENCH = Path(__file__).resolve().parent.parent
_DECIDING = (
    "calibration/steps.py", "eventlog.py", "fidelity/server_predict.py", "live/boundaries.py",
    "live/predict.py",
)  # fmt: skip
"""Files of bench/ that decide what is predicted, beside those of ``bench.code``."""


class Numbers(NamedTuple):
    """Of one run: program latency (mean and p95, seconds from the scheduled arrival; p95 NaN below
    ``FEWEST`` programs), calls per minute from the first arrival to the last end, waiting over execution
    summed over calls, the part of a call's wait in which a gate held it (p99, seconds; NaN below
    ``FEWEST_CALLS``), prefix hits over prompt tokens, preemptions."""

    response_mean: float
    response_p95: float
    steps_per_min: float
    wait_per_exec: float
    hold_p99: float
    hit_rate: float
    preemptions: float


@dataclass(frozen=True)
class Fit:
    """What step times are fitted on. ``sources``: cells, or a pilot; ``engines``: of steps.json;
    ``lag_s``: see ``bench.live.lag``; ``shared``: of the programs that are predicted, the share that the
    sources ran, too (recorded ones: another seed draws from the same records)."""

    sources: tuple[str, ...]
    engines: Sequence[Mapping[str, Any]]
    lag_s: float
    shared: float = 0.0

    @property
    def digest(self) -> str:
        """16 hex digits over steps and lag: a source that was measured anew has others."""
        return hashlib.sha256(json.dumps([self.engines, self.lag_s]).encode()).hexdigest()[:16]

    def calibration(self, model: str, gpu: str) -> Calibration:
        """Linear step times. Raises InvalidRun if there are too few steps."""
        rows = [
            StepRow(start, end, seconds, tuple(units), ())
            for engine in self.engines
            for start, end, seconds, units in engine["rows"]
        ]
        log = StepLog(self.engines[0]["head"], rows)
        source = {"runs": list(self.sources), "steps": len(rows)}
        try:
            return fit_log(log, name="live", model=model, gpu=gpu, source=source)
        except ValueError as error:
            raise InvalidRun(str(error)) from None


@cache
def predictor_code() -> str:
    """16 hex digits over the code that makes a prediction of steps and plan, but for ``bench.code``'s."""
    digest = hashlib.sha256()
    for name in _DECIDING:
        digest.update(f"{name}\0".encode() + (_BENCH / name).read_bytes())
    return digest.hexdigest()[:16]


def numbers_of(tables: Tables) -> Numbers:
    """The numbers of a run's tables."""
    done = metrics.finished(tables.programs)
    response = metrics.response(done)
    return Numbers(
        float(response.mean()) if len(response) else float("nan"),
        float(np.quantile(response, 0.95)) if len(response) >= FEWEST else float("nan"),
        60.0 * metrics.throughput(tables.programs, tables.calls)["calls_per_s"],
        metrics.wait_exec(tables.programs)["wait_per_exec"],
        float(tables.calls.hold_s.quantile(0.99)) if len(tables.calls) >= FEWEST_CALLS else float("nan"),
        metrics.kv_hits(tables.calls)["hit_rate"],
        float(tables.calls.preemptions.sum()),
    )


def predict(plan: LivePlan, fit: Fit, calibration: Calibration) -> Numbers:
    """The median of ``ENSEMBLE`` simulated runs."""
    runs = [numbers_of(simulate(plan, calibration, fit.lag_s, k)) for k in range(ENSEMBLE)]
    return Numbers._make(float(np.median(column)) for column in zip(*runs, strict=True))


def simulate(plan: LivePlan, calibration: Calibration, lag_s: float, seed: int) -> Tables:
    """One simulated run, as a live engine would have logged it; each call is ``lag_s`` late, about
    (``seed`` draws it)."""
    table, sink = build_table(plan.spec), MemorySink()
    config = replace(plan.engine, record_steps=True, record_decisions=False)
    model = LinearModel(calibration)
    engines = [
        SimEngine(i, config, build_scheduler(plan.spec, table), model) for i in range(plan.config.replicas)
    ]
    end = drive(
        [slowed(program, lag_s, seed) for program in plan.programs.programs],
        times=plan.times,
        concurrency=plan.config.concurrency,
        engines=engines,
        router=build_router(plan.spec),
        table=table,
        sink=sink,
        **governing_policies(plan),
    )
    sink.totals = [EngineTotals.of(number, stats) for number, stats in enumerate(end.engines)]
    taken_in(sink, [Boundaries(engine.steps) for engine in engines])
    tables = from_memory(sink)
    tables.calls["cached_tokens"] = whole(tables.calls.cached_tokens, plan.served.block_size)
    return tables


def taken_in(sink: MemorySink, engines: Sequence[Boundaries]) -> None:
    """Arrivals at the end of the step that ran: what came before is not wait to a live engine."""
    programs = {row.program: row for row in sink.programs}
    for call in (call for call in sink.calls if call.engine >= 0):  # else it never left the door
        late = engines[call.engine].late(call.t_arrive)
        call.t_arrive += late
        call.wait_s -= late
        programs[call.call.program].wait_s -= late


def whole(tokens: pd.Series, block_size: int) -> pd.Series:
    """Hits in whole blocks of the engine's size."""
    return tokens - tokens % block_size
