"""One replay by our simulator; run by ``simulator.py`` in a process of its own.

    .venv/bin/python benchmarks/replay_ours.py TRACE '{"scheduler": "fcfs", ...}'

Prints one JSON object. ``wall_s`` is the replay without reading the file. Rows and decisions
are kept in memory, or written to an event log in a temporary folder (``"log": true``).
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.drivers.virtual import drive
from bench.eventlog import EventLog
from bench.native import is_compiled
from bench.records import MemorySink, RunEnd
from benchmarks.loads import Load, read
from systems.catalog import build_router, build_scheduler, build_table, load_system
from systems.engines.sim import SimEngine
from systems.latency import load_table
from systems.protocols import Engine, LatencyModel
from vocabulary import INF, EngineConfig, Finished


class FixedTimes:
    """Dynamo's ``fixed`` timing: so long for the prefills of a step, so long for its decodes."""

    name = "fixed"

    def __init__(self, prefill_s: float, decode_s: float) -> None:
        self.prefill_s = prefill_s
        self.decode_s = decode_s

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:  # noqa: ARG002
        """The sum of both, as far as there are any."""
        return (self.prefill_s if prefills else 0.0) + (self.decode_s if n_decode else 0.0)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:  # noqa: ARG002
        """A constant."""
        return self.decode_s, 0.0, INF


def latency_of(asked: dict[str, Any]) -> LatencyModel:
    """Fixed step times where ``step_s`` names them, else Llama-3.1-8B on an A100."""
    if asked["step_s"] is not None:
        return FixedTimes(*asked["step_s"])
    return load_table("llama-3.1-8b", "a100")


def replay(
    load: Load, asked: dict[str, Any], sink: MemorySink | EventLog, make: Callable[..., Engine] = SimEngine
) -> tuple[RunEnd, float, float]:
    """The end of the run on the engine that ``make`` makes; wall and CPU seconds it took."""
    spec = load_system("vllm-opt", scheduler=asked["scheduler"])
    table = build_table(spec)
    engine = make(0, EngineConfig(**asked["engine"]), build_scheduler(spec, table), latency_of(asked))
    left = load.output_tokens()
    gc.collect()
    start, cpu = time.perf_counter(), time.process_time()
    end = drive(
        load.specs(), times=load.times, engines=[engine], router=build_router(spec), table=table, sink=sink,
        remaining=(lambda s: left[s.index]) if spec.clairvoyant else None,
    )  # fmt: skip
    if isinstance(sink, EventLog):
        sink.finish()
    return end, time.perf_counter() - start, time.process_time() - cpu


def totals(calls: Sequence[Finished], end: RunEnd, detail: bool) -> dict[str, Any]:
    """What ``replay_dynamo`` says of the work, from our rows."""
    did, prompts = end.engines[0], sum(row.call.prompt_tokens for row in calls)
    found: dict[str, Any] = {
        "input_tokens": prompts, "output_tokens": sum(row.output_tokens for row in calls),
        "hit_rate": sum(row.cached_tokens for row in calls) / prompts,
        "ttft_s": sum(row.t_first_token - row.t_arrive for row in calls) / len(calls),
        "e2e_s": sum(row.t_end - row.t_arrive for row in calls) / len(calls),
        "preemptions": did["preemptions"], "steps": did["steps"],
    }  # fmt: skip
    if detail:
        found["rows"] = sorted(
            (row.t_arrive * 1e3, row.t_first_token * 1e3, row.t_end * 1e3) for row in calls
        )
    return found


def main() -> None:
    """Arguments: the trace, and JSON with scheduler, engine, step_s, log and detail."""
    asked = json.loads(sys.argv[2])
    load = read(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        sink = EventLog(Path(folder)) if asked["log"] else MemorySink()
        end, wall_s, cpu_s = replay(load, asked, sink)
    found: dict[str, Any] = {"wall_s": wall_s, "cpu_s": cpu_s, "calls": end.calls}
    found |= {"makespan_s": end.time, "compiled": is_compiled()}
    if isinstance(sink, MemorySink):
        found |= totals(sink.calls, end, asked["detail"]) | {"decisions": len(sink.decided)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
