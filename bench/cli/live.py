"""What ``bench run`` and ``bench sweep`` do with real engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from bench.cli.common import emit_json, page
from bench.config import RunConfig
from bench.errors import UsageError

if TYPE_CHECKING:
    from bench.grid import Grid


def say(text: str) -> None:
    """What is being done."""
    typer.echo(text, err=True)


def sweep_live(grid: Grid, workers: int | None, force: bool, as_json: bool, dry_run: bool) -> None:
    """The cells of a grid, one at a time, systems in turn, and predictions beside them."""
    from bench.cli.sweep import progress, show
    from bench.live.cells import sweep_live as run_all
    from bench.sweep import exit_code

    if workers not in (None, 1):
        raise UsageError("--workers is for simulated cells: live ones run one at a time")
    configs = grid.cells()
    if dry_run:
        plan_only(configs, as_json)
        return
    with progress() as report:
        swept = run_all(configs, say, force=force, progress=report)
    rows, notes = swept.beside(say)
    show(grid, configs, swept.outcomes, as_json, {"beside": rows, "notes": notes})
    if code := exit_code(swept.outcomes):
        raise typer.Exit(int(code))


def shown(rows: Sequence[dict[str, Any]], notes: Sequence[str]) -> None:
    """The table of measured and predicted numbers."""
    from reports.live import render

    if rows:
        page(render(rows))
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def plan_only(configs: Sequence[RunConfig], as_json: bool) -> None:
    """What would run, where that is known without a pilot."""
    facts = [fact(config) for config in configs]
    if as_json:
        emit_json({"cells": facts})
        return
    for found in facts:
        typer.echo("  ".join(str(value) for value in found.values()))


def fact(config: RunConfig) -> dict[str, Any]:
    """A cell in words; its folder depends on its rate, which a pilot tells where none is given."""
    from bench.live.cells import plan_of, rate_known

    known = rate_known(config)
    plan = plan_of(known or replace(config, rate=1.0))
    return {
        "system": config.system,
        "workload": plan.programs.name,
        "seed": config.seed,
        "programs": len(plan.programs.programs),
        "load": plan.load if known else "the rate is a pilot's to tell",
        "result": str(plan.folder) if known else "",
    }
