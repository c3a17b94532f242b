"""Experiments of kind ``schedule``: a small example, compared step by step.

One engine with steps of constant length, so that who ran in each step can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.records import MemorySink
from systems.catalog import SystemSpec, build_router, build_scheduler, build_table, load_system
from vocabulary import EngineConfig, Step
from workloads.base import ProgramSpec
from workloads.keys import key_of
from workloads.session import Session

_FIELDS = {
    "name",
    "kind",
    "title",
    "source",
    "cost",
    "max_num_seqs",
    "step_s",
    "programs",
    "schedules",
    "claims",
}


def run(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Run an experiment; returns its report (schedules, and a verdict per claim).

    Raises UsageError naming file and field.
    """
    if wrong := sorted(set(data) - _FIELDS):
        raise UsageError(f"{path}: unknown field {wrong[0]!r}; known: {', '.join(sorted(_FIELDS))}")
    schedules = [schedule(entry, data) for entry in data["schedules"]]
    by_label = {s["system"]: s for s in schedules}
    claims = [verdict(claim, by_label[claim["schedule"]]) for claim in data["claims"]]
    return {
        "name": data["name"],
        "title": data["title"],
        "source": data["source"],
        "programs": data["programs"],
        "schedules": schedules,
        "claims": claims,
        "holds": all(c["verdict"] != "not reproduced" for c in claims),
    }


def verdict(claim: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, Any]:
    """reproduced; differs (as the claim's ``known`` value explains); or not reproduced."""
    value = " ".join(got["steps"]) if claim["quantity"] == "steps" else got[claim["quantity"]]
    word = "not reproduced"
    if value == claim["expected"]:
        word = "reproduced"
    elif value == claim.get("known"):
        word = "differs"
    return {
        "statement": claim["statement"],
        "expected": claim["expected"],
        "got": value,
        "verdict": word,
        "note": claim.get("note", ""),
    }


def schedule(entry: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """One scheduler on the example: who ran in each step, and who waited how long."""
    system = load_system(entry["system"], knobs=entry.get("knobs", {}))
    sink, steps = play(data["programs"], system, data["max_num_seqs"], data["step_s"])
    names = list(data["programs"])
    owner = {row.call.seq: names[row.call.program] for row in sink.calls}
    waits = dict.fromkeys(names, 0.0)
    for row in sink.calls:
        waits[owner[row.call.seq]] += row.wait_s / data["step_s"]
    return {
        "system": entry["label"],
        "paper": entry["paper"],
        "steps": ["".join(sorted(owner[seq] for seq, _ in step.batch)) for step in steps],
        "waits": waits,
        "total_wait": sum(waits.values()),
        "makespan": max(row.t_end for row in sink.programs) / data["step_s"],
    }


def play(
    programs: Mapping[str, Sequence[int]], system: SystemSpec, max_num_seqs: int, step_s: float
) -> tuple[MemorySink, list[Step]]:
    """Sequential programs of ``steps per call``, all arriving at 0, on one simulated engine."""
    from bench.drivers.virtual import drive
    from systems.engines.sim import SimEngine
    from systems.latency.model import ConstantLatency

    specs = [
        ProgramSpec(i, name, key_of("schedule", name), partial(_calls, tuple(calls)))
        for i, (name, calls) in enumerate(programs.items())
    ]
    config = EngineConfig(kv_blocks=1024, max_num_seqs=max_num_seqs, record_steps=True)
    table = build_table(system)
    scheduler = build_scheduler(system, table)
    engine = SimEngine(0, config, scheduler, ConstantLatency(step_s))
    sink = MemorySink()
    drive(
        specs,
        times=[0.0] * len(specs),
        engines=[engine],
        router=build_router(system),
        table=table,
        sink=sink,
    )
    return sink, engine.steps


async def _calls(outputs: Sequence[int], session: Session) -> None:
    for output in outputs:
        await session.call(new=1, output=output)
