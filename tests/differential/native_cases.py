"""Seeded workloads under every scheduler and engine option, as digests; run in a process of its own.

    python -m tests.differential.native_cases          # one JSON object: case -> digest

``test_native`` runs it on plain Python and on a compiled build.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import bench.native
from bench.drivers.virtual import drive
from bench.records import MemorySink
from systems.catalog import build_router, build_scheduler, build_table, load_system, scheduler_names
from systems.engines.sim import SimEngine
from systems.latency import load_table
from tests.keeping import VICTIMS, play_keeping, seeded_plan
from tests.live.seeded import scenario, scheduler, system
from tests.scenarios import play
from vocabulary import EngineConfig
from workloads.load import load

SEEDS = range(10)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole prompts": {"chunked_prefill": False},
    "every 4 steps": {"schedule_every": 4},
    "swap": {"preemption": "swap", "host_blocks": 40},
    "hold": {"preemption": "hold"},
    "host tier": {"host_tier": True, "host_blocks": 40},
}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def engines(name: str, options: dict[str, Any]) -> str:
    """Scripted programs on one to three engines: every row, step and decision, with their types."""
    found = []
    for seed in SEEDS:
        case = scenario(seed, engines=1 + seed % 3)
        cached = case.config.prefix_cache or "host_tier" in options
        config = replace(case.config, record_steps=seed % 2 == 0, prefix_cache=cached, **options)
        played = play(
            SimEngine, replace(case, config=config), scheduler(name, seed), rule=system(name, seed).rule
        )
        found.append(repr((played.decisions, played.rows, played.steps, played.stats)))
    return _digest("".join(found))


def keeping(option: str) -> str:
    """What calls left is kept, released and dropped by a plan: all of it, the answers and the counts."""
    found = []
    for seed in SEEDS:
        case = scenario(seed, engines=1 + seed % 2)
        cached = case.config.prefix_cache or option == "host tier"
        config = replace(case.config, record_steps=seed % 3 == 0, prefix_cache=cached, **OPTIONS[option])
        victims = sorted(VICTIMS)[seed % len(VICTIMS)]
        case, plan = replace(case, config=config), seeded_plan(seed)
        played, *notes = play_keeping(
            SimEngine, case, scheduler("mlfq", seed), plan, victims, firm=seed % 4 > 1
        )
        found.append(repr((played.decisions, played.rows, played.steps, played.stats, notes)))
    return _digest("".join(found))


def driver(name: str) -> str:
    """A workload through the driver with a table of kernel times: rows, decisions, samples."""
    made = load("react", n=40, seed=3)
    spec = load_system("vllm-opt", scheduler=name)
    table, latency = build_table(spec), load_table("llama-3.1-8b", "a100")
    engine = SimEngine(0, EngineConfig(kv_blocks=1500), build_scheduler(spec, table), latency)
    sink = MemorySink()
    end = drive(
        made.programs, times=[0.3 * i for i in range(40)], engines=[engine], router=build_router(spec),
        table=table, sink=sink, remaining=(lambda s: 1000.0 + s.index) if spec.clairvoyant else None,
    )  # fmt: skip
    return _digest(repr((sink.calls, sink.programs, sink.decided, sink.samples, end)))


def main() -> None:
    """Print all digests, and whether compiled modules made them."""
    found = {
        f"{name}, {option}": engines(name, OPTIONS[option])
        for name in scheduler_names()
        for option in OPTIONS
    }
    found |= {f"{name}, driver": driver(name) for name in scheduler_names()}
    found |= {f"kept, {option}": keeping(option) for option in OPTIONS}
    print(
        json.dumps({"compiled": bench.native.is_compiled(), "engine": SimEngine.__mro__[1].__name__, **found})
    )


if __name__ == "__main__":
    main()
