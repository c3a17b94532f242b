"""Peak memory of a worker that runs many programs and streams its rows to a real event log.

    python benchmarks/memory.py [--workload chatbot|mcts] [--programs N] [--scheduler NAME]

Bars: 10 000 chatbot programs in 400 MB, 10 000 mcts programs in 1 GB. The run
is that of ``bench run``: default rate of the workload, A100, Llama-3.1-8B.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.drivers.virtual import drive
from bench.eventlog import EventLog
from benchmarks.calibration import ns_per_turn
from systems.catalog import build_router, build_scheduler, build_table, load_system, scheduler_names
from systems.engines.sim import SimEngine
from systems.latency import load_table
from vocabulary import EngineConfig
from workloads.arrivals import poisson
from workloads.load import load

BARS_MB = {"chatbot": 400, "mcts": 1000}


def peak_mb() -> float:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(workload: str, programs: int, scheduler: str) -> dict[str, float]:
    """One run in this process: calls, CPU seconds, peak MB before and after."""
    made = load(workload, n=programs, seed=0)
    assert made.rate is not None
    spec = load_system("vllm-opt", scheduler=scheduler)
    table, latency = build_table(spec), load_table("llama-3.1-8b", "a100")
    config = EngineConfig(kv_blocks=latency.kv_blocks, max_model_len=latency.max_model_len)
    engine = SimEngine(0, config, build_scheduler(spec, table), latency)
    before, start = peak_mb(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(Path(folder))
        end = drive(
            made.programs, times=poisson(made.rate, programs, 0), engines=[engine],
            router=build_router(spec), table=table, sink=log,
        )  # fmt: skip
        log.finish()
    return {
        "calls": end.calls, "cpu_s": time.process_time() - start, "before_mb": before, "peak_mb": peak_mb(),
        "utilisation": end.engines[0]["busy_s"] / end.time,
    }  # fmt: skip


def main() -> None:
    """Prints one line; exit status 1 if the bar for 10 000 programs is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workload", choices=list(BARS_MB), default="chatbot")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--scheduler", choices=scheduler_names(), default="fcfs")
    arguments = parser.parse_args()
    quiet = ns_per_turn()
    result = run(arguments.workload, arguments.programs, arguments.scheduler)
    bar = BARS_MB[arguments.workload]
    print(
        f"{arguments.workload} {arguments.scheduler}: {arguments.programs:,} programs, "
        f"{result['calls']:,} calls, {result['cpu_s']:.1f} s CPU "
        f"({result['calls'] / result['cpu_s']:,.0f} calls/s with event log, {quiet:.0f} ns/turn), "
        f"utilisation {result['utilisation']:.2f}, "
        f"peak {result['peak_mb']:.0f} MB ({result['before_mb']:.0f} before the run; bar {bar})"
    )
    sys.exit(result["peak_mb"] > bar)


if __name__ == "__main__":
    main()
