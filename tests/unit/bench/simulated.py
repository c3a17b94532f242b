"""Cells of real runs that leave nothing on disk: for comparisons and variations of many of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from bench import metrics
from bench.card import card
from bench.comparing import Cell, Group, group_id
from bench.config import RunConfig
from bench.eventlog import from_memory
from bench.manifest import command_line
from bench.plan import plan
from bench.records import MemorySink
from bench.run import drive_plan
from bench.sensitivity import METRICS
from bench.stats import Estimate

LATENCY = "program.s_per_token.mean_of_ratios"


def simulated(config: RunConfig) -> Cell:
    """The finished cell of a configuration, with the headline metrics."""
    made = plan(config)
    sink = MemorySink()
    drive_plan(made, sink)
    tables = from_memory(sink)
    done = metrics.finished(tables.programs)
    found = {f"program.response.{k}": v for k, v in metrics.program_latency(done).items()}
    found |= {f"program.s_per_token.{k}": v for k, v in metrics.seconds_per_token(done).items()}
    numbers = {name: found[name]._asdict() for name in METRICS}
    manifest = {**made.details(), "identity": made.identity, "command": command_line(config.words())}
    summary = {
        "system": config.system, "workload": made.programs.name, "load": made.load, "badge": made.badge,
        "cell": made.cell, "seed": config.seed, "trend": {"verdict": "steady"}, "card": card(manifest),
        "metrics": {**numbers, "system.finished_share": Estimate(1.0)._asdict()},
        "result_hash": hashlib.sha256(repr(sink.programs).encode()).hexdigest(),
    }  # fmt: skip
    return Cell(Path("nowhere") / made.cell, summary, manifest)


def group(cells: Sequence[Cell]) -> Group:
    """Cells of one configuration."""
    return Group(group_id(cells[0].identity), Path("nowhere"), {c.summary["seed"]: c for c in cells})
