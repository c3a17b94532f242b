"""``bench sweep``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, Out, Params, Seed, emit_json, page, verb
from bench.cli.run import ProgramsOrSeconds, split_format
from bench.config import LIVE_ENGINE, RunConfig, pairs, programs_of_each, subject

if TYPE_CHECKING:
    from bench.cells import Failure, Look
    from bench.grid import Grid
    from bench.run import RunResult
    from bench.sweep import Standing, SweepProgress

Option = typer.Option
Many = list[str]
PATIENCE = 30.0
"""Seconds between two lines of progress where stderr is no terminal."""


@verb
def sweep(
    system: Annotated[Many, Option(help="A system (bench ls systems), or pkg.mod:Class (repeatable).")],
    workload: Annotated[Many, Option(help="As for bench run (repeatable).")],
    rate: Annotated[
        Many | None,
        Option(
            metavar="RATE|LOW:HIGH:COUNT",
            help="Programs per second, or equal steps (repeatable); default: the workload's.",
        ),
    ] = None,
    n: ProgramsOrSeconds = None,
    seed: Seed = 1,
    seeds: Annotated[int, Option(help="Seeds, from --seed on; verdicts need 8.")] = 1,
    model: Annotated[Many | None, Option(help="Model of the latency table (repeatable).")] = None,
    gpu: Annotated[Many | None, Option(help="GPU of the latency table (repeatable).")] = None,
    engine: Annotated[
        str, Option(help="sim, reference, vllm-virtual, or vllm: real servers, one cell at a time.")
    ] = "sim",
    knob: Annotated[
        Many | None, Option(metavar="SLOT.NAME=VALUE", help="A knob of all cells (repeatable).")
    ] = None,
    vary: Annotated[
        Many | None,
        Option(
            metavar="NAME=VALUE,VALUE",
            help="A knob, replicas, concurrency, scheduler, router or a workload parameter (repeatable).",
        ),
    ] = None,
    param: Params = None,
    on_overflow: Annotated[
        str | None, Option(help="refuse, skip or truncate prompts over the context or the KV cache.")
    ] = None,
    out: Out = Path("results"),
    workers: Annotated[int | None, Option(min=1, max=1024, help="Processes; default: one per core.")] = None,
    force: Annotated[bool, Option("--force", help="Run again what is there.")] = False,
    as_json: Json = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would run, and what is there.")] = False,
) -> None:
    """Run every combination of systems, workloads, rates, settings and seeds on all cores."""
    from bench.grid import Grid, rates, variations

    counts, programs, horizon = programs_of_each(n)
    base = RunConfig(
        "", "", n=programs, horizon=horizon, seed=seed, engine=engine, knobs=pairs(knob or [], "--knob"),
        parameters=pairs(param or [], "-p"), on_overflow=on_overflow, out=out,
    )  # fmt: skip
    models, on = _subjects(engine, model, gpu)
    grid = Grid(
        base, _once(system), [split_format(name) for name in _once(workload)], rates(rate or []) or (None,),
        models, on, variations(vary or []), seeds, counts,
    )  # fmt: skip
    if engine == LIVE_ENGINE:
        from bench.cli.live import sweep_live

        sweep_live(grid, workers, force, as_json, dry_run)
    elif dry_run:
        _dry_run(grid, workers, as_json)
    else:
        _sweep(grid, workers, force, as_json)


def _subjects(engine: str, models: Many | None, gpus: Many | None) -> tuple[list[str], list[str]]:
    """Models and GPUs, each once; what is served where none are given."""
    named: list[str | None] = [*_once(models)] or [None]
    on: list[str | None] = [*_once(gpus)] or [None]
    pairs = [subject(engine, model, gpu) for model in named for gpu in on]
    return _once([model for model, _ in pairs]), _once([gpu for _, gpu in pairs])


def _once(words: Sequence[str] | None) -> list[str]:
    return list(dict.fromkeys(words or ()))


def _dry_run(grid: Grid, workers: int | None, as_json: bool) -> None:
    from bench.sweep import survey
    from reports.sweep import plan

    looks = _usable(survey(grid.cells(), workers=workers))
    facts = _facts(looks, 1) | {"repeat": _command(grid), "results": [look.folder for look in looks]}
    if as_json:
        emit_json(facts)
        return
    typer.echo(plan(facts))
    typer.echo(f"results in {grid.base.out}\nrepeat {facts['repeat']}")


def _command(grid: Grid) -> str:
    from bench.grid import words
    from bench.manifest import command_line

    return command_line(words(grid))


def _usable(looks: Sequence[Look | Failure]) -> list[Look]:
    """The looks, if no cell asks for something that does not exist. Raises BenchError for the first."""
    from bench.cells import Failure
    from bench.errors import Exit, UsageError

    for look in looks:
        if isinstance(look, Failure) and look.exit_code == Exit.USAGE:
            raise UsageError(look.message)
    return [look for look in looks if not isinstance(look, Failure)]


def _facts(looks: Sequence[Look], seeds: int) -> dict[str, Any]:
    return {
        "cells": len(looks) * seeds,
        "there": sum(look.there for look in looks) if seeds == 1 else 0,
        "programs": sum(look.programs for look in looks) * seeds,
        "calls": sum(look.calls for look in looks) * seeds,
    }


def _sweep(grid: Grid, workers: int | None, force: bool, as_json: bool) -> None:
    from bench.cells import Look
    from bench.sweep import exit_code, run_cells, survey
    from reports.sweep import plan

    configs = grid.cells()
    first = survey(configs[: grid.points()], workers=workers)
    typer.echo(plan(_facts(_usable(first), grid.seeds)), err=True)
    calls = [look.calls if isinstance(look, Look) else 0 for look in first] * grid.seeds
    with progress() as report:
        outcomes = run_cells(configs, workers=workers, force=force, progress=report, calls=calls)
    show(grid, configs, outcomes, as_json)
    if code := exit_code(outcomes):
        raise typer.Exit(int(code))


def show(
    grid: Grid, configs: Sequence[RunConfig], outcomes: Sequence[RunResult | Failure], as_json: bool,
    live: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """The page of a sweep, or its JSON; ``live``: what live cells have beside it (``bench.cli.live``)."""
    from bench.cells import Failure
    from bench.sweep import points
    from reports.sweep import render

    failures = [o for o in outcomes if isinstance(o, Failure)]
    rows = [{"axes": _axes(grid, config), **summary} for config, summary in points(configs, outcomes)]
    if as_json:
        lost = [{"cell": f.config.words(), "exit": f.exit_code, "message": f.message} for f in failures]
        emit_json({"points": rows, "failures": lost, "repeat": _command(grid), **(live or {})})
        return
    if live is not None:
        from bench.cli.live import shown

        shown(live["beside"], live["notes"])
    if rows and not (live or {}).get("beside"):
        page(render(rows))
    for line in failed(failures):
        typer.echo(line, err=True)
    lines = {"results": str(grid.base.out), "repeat": _command(grid)} | _next(rows, grid.base.out)
    typer.echo("\n".join(f"{name:<12}{line}" for name, line in lines.items()))


def _next(rows: Sequence[dict[str, Any]], out: Path) -> dict[str, str]:
    """What to ask of the results: whether the last system is better than the first, and a page of all."""
    from bench.manifest import command_line

    if not rows:
        return {}
    found = {"report": command_line(["bench", "report", str(out)])}
    base, new = rows[0], rows[-1]
    if base["system"] != new["system"]:
        words = ["bench", "compare", str(out), str(out), "--base-system", base["system"]]
        words += ["--new-system", new["system"], "--workload", base["workload"]]
        words += ["--rate", str(base["axes"]["rate"])] if "rate" in base["axes"] else []
        found = {"compare": command_line(words)} | found
    return found


def _axes(grid: Grid, config: RunConfig) -> dict[str, Any]:
    """The names and values that tell a row from the others of its workload."""
    axes: dict[str, Any] = {"system": config.system}
    if config.rate is not None:
        axes["rate"] = f"{config.rate:.6g}"
    for name in grid.vary:
        given = {**config.knobs, **config.parameters}
        axes[name.rpartition(".")[2]] = given[name] if name in given else getattr(config, name)
    return axes


def failed(failures: Sequence[Failure]) -> list[str]:
    """A line for each reason, with how many cells have it; a full disk once."""
    reasons: dict[str, list[Failure]] = {}
    for failure in failures:
        reasons.setdefault("full" if failure.disk_full else failure.message, []).append(failure)
    lines = []
    for found in reasons.values():
        first = found[0].config
        rate = "" if first.rate is None else f" at {first.rate:g}/s"
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        where = f"{first.system} on {first.workload}{rate}, seed {first.seed}{more}"
        message = next((f.message for f in found if not f.message.startswith("not run")), found[0].message)
        lines.append(f"error: {where}: {message}")
    return lines


@contextmanager
def progress() -> Iterator[SweepProgress]:
    """A bar on a terminal, else a line now and then."""
    import sys

    if not sys.stderr.isatty():
        yield Lines()
        return
    bar = Bar()
    try:
        yield bar
    finally:
        bar.stop()


def left(standing: Standing) -> str:
    """The time left, in words; empty while nothing is known."""
    if standing.calls < 1 or standing.seconds <= 0:
        return ""
    seconds = standing.calls_left * standing.seconds / standing.calls
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


def where(standing: Standing) -> str:
    """How far a sweep is, in words."""
    parts = [f"{standing.done + standing.failed:,} of {standing.cells:,} cells"]
    names = {"there": "there before", "failed": "failed", "elsewhere": "being run by another bench"}
    parts += [f"{n:,} {text}" for name, text in names.items() if (n := getattr(standing, name))]
    return ", ".join(parts)


class Lines:
    """A line now and then: for logs."""

    def __init__(self) -> None:
        self._next = PATIENCE

    def __call__(self, standing: Standing) -> None:
        """Say where the sweep stands, if it is time."""
        if standing.seconds < self._next:
            return
        self._next = standing.seconds + PATIENCE
        parts = (where(standing), f"{standing.calls:,.0f} calls in {standing.seconds:.0f} s", left(standing))
        typer.echo("; ".join(part for part in parts if part), err=True)


class Bar:
    """A bar over the calls, drawn by our own hand: no thread, since workers are forked."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
        self._bar = Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def __call__(self, standing: Standing) -> None:
        """Draw where the sweep stands."""
        text = ", ".join(part for part in (where(standing), left(standing)) if part)
        total = max(1.0, standing.calls + standing.calls_left)
        self._bar.update(self._task, completed=standing.calls, total=total, description=text)
        self._bar.refresh()

    def stop(self) -> None:
        """Remove the bar."""
        self._bar.stop()
