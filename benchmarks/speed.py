"""How fast the simulator is: load ``speed1`` on one core, for every scheduler.

speed1: 1 000 programs, Poisson 0.6/s, seed 1; calls per program round(LN(2.0, .8)) in 1..40;
output LN(5.4, .8) >= 8; first input LN(6.5, .6), later ones LN(5, .7) >= 8; tools LN(-.5, 1.0) s;
A100, Llama-3.1-8B, 27 000 blocks, 256 sequences, 2 048 tokens a step. Event rows are kept.

    python benchmarks/speed.py [--json] [--repeat N] [--scheduler NAME]... [--option NAME=VALUE]...

``--option`` sets engine options for all rows (docs/engine-options.md): chunked_prefill=false,
preemption=swap, ...; moving a block takes 0.1 ms.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.drivers.virtual import drive
from bench.records import MemorySink
from benchmarks.calibration import ns_per_turn
from systems.catalog import build_router, build_scheduler, build_table, load_system, scheduler_names
from systems.engines.sim import SimEngine
from systems.latency import load_table
from vocabulary import EngineConfig, on_grid
from workloads.arrivals import poisson
from workloads.base import ProgramSpec
from workloads.keys import key_of
from workloads.random_streams import Stream
from workloads.session import Session

Plan = Sequence[tuple[int, int, float]]
"""Per call: new tokens, output tokens, tool seconds after it."""


def plan(index: int) -> list[tuple[int, int, float]]:
    """The calls of one speed1 program."""
    draw = Stream(key_of("speed1", 1, index))
    calls = min(40, max(1, round(draw.lognormal(2.0, 0.8))))
    rows = []
    for call in range(calls):
        new = draw.lognormal(5.0, 0.7) if call else draw.lognormal(6.5, 0.6)
        output = max(8, round(draw.lognormal(5.4, 0.8)))
        rows.append((max(8, round(new)), output, draw.lognormal(-0.5, 1.0)))
    return rows


async def program(rows: Plan, session: Session) -> None:
    """Calls with a tool between two of them."""
    for number, (new, output, tool_s) in enumerate(rows):
        if number:
            await session.tool("tool", tool_s)
        await session.call(new, output=output)


class Link:
    """Moving KV over a link of one speed."""

    def seconds(self, blocks: int) -> float:
        """0.1 ms a block."""
        return on_grid(1e-4 * blocks)


def option(text: str) -> tuple[str, bool | int | str]:
    """``name=value`` of an engine option. Raises ValueError without a value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"an option is NAME=VALUE, got {text!r}")
    return name, {"true": True, "false": False}.get(value, int(value) if value.isdigit() else value)


def measure(
    scheduler: str, plans: Sequence[Plan], times: Sequence[float], **options: Any
) -> dict[str, float | str]:
    """One run; CPU seconds of this process, simulated seconds, rates."""
    spec = load_system("vllm-opt", scheduler=scheduler)
    table = build_table(spec)
    config = EngineConfig(kv_blocks=27_000, max_num_seqs=256, max_num_batched_tokens=2048, **options)
    engine = SimEngine(0, config, build_scheduler(spec, table), load_table("llama-3.1-8b", "a100"), Link())
    specs = [
        ProgramSpec(i, "speed1", key_of("speed1", i), partial(program, rows)) for i, rows in enumerate(plans)
    ]
    left = [float(sum(row[1] for row in rows)) for rows in plans]
    sink = MemorySink()
    gc.collect()
    start = time.process_time()
    end = drive(
        specs, times=times, engines=[engine], router=build_router(spec), table=table, sink=sink,
        remaining=(lambda s: left[s.index]) if spec.clairvoyant else None,
    )  # fmt: skip
    cpu = time.process_time() - start
    tokens = sum(row.output_tokens for row in sink.calls)
    return {
        "scheduler": scheduler, "calls": end.calls, "output_tokens": tokens,
        "cpu_s": cpu, "simulated_s": end.time, "calls_per_s": end.calls / cpu,
        "output_tokens_per_s": tokens / cpu, "simulated_s_per_s": end.time / cpu,
        "steps": end.engines[0]["steps"], "utilisation": end.engines[0]["busy_s"] / end.time,
        "hit_rate": end.engines[0]["hit_tokens"] / max(1, end.engines[0]["query_tokens"]),
        "preemptions": end.engines[0]["preemptions"],
    }  # fmt: skip


def main() -> None:
    """Best of ``--repeat`` runs per scheduler, as a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scheduler", action="append", help="a scheduler's name (default: all)")
    parser.add_argument("--option", action="append", type=option, default=[], metavar="NAME=VALUE")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    plans = [plan(index) for index in range(1000)]
    times = poisson(0.6, 1000, 1)
    rows = []
    for scheduler in arguments.scheduler or scheduler_names():
        runs = []
        for _ in range(arguments.repeat):
            before = ns_per_turn()
            run = measure(scheduler, plans, times, **dict(arguments.option))
            run["ns_per_turn"] = (before + ns_per_turn()) / 2
            runs.append(run)
        rows.append(min(runs, key=lambda run: run["cpu_s"]))
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows)


def show(rows: Sequence[dict[str, float | str]]) -> None:
    """A table; ``ns/turn`` says how quiet the core was (``calibration``)."""
    print("scheduler      calls/s  M tok/s  sim s/s   CPU s    steps  util  hits  preempt  ns/turn")
    for row in rows:
        print(
            f"{row['scheduler']:<12}{row['calls_per_s']:>10,.0f}"
            f"{float(row['output_tokens_per_s']) / 1e6:>9.1f}"
            f"{row['simulated_s_per_s']:>9,.0f}{row['cpu_s']:>8.3f}{row['steps']:>9,.0f}"
            f"{row['utilisation']:>6.2f}{row['hit_rate']:>6.2f}{row['preemptions']:>9,.0f}"
            f"{row['ns_per_turn']:>9.0f}"
        )


if __name__ == "__main__":
    main()
