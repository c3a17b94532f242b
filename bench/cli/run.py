"""``bench run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.common import Json, Out, Params, Seed, emit_json, page, progress, verb
from bench.config import (
    LIVE_ENGINE,
    MOST_SEEDS,
    RunConfig,
    pairs,
    programs_or_horizon,
    rate_and_arrivals,
    subject,
)
from bench.repeat import split_format as split_format

if TYPE_CHECKING:
    from bench.plan import Plan

Option = typer.Option
Rate = Annotated[
    str | None,
    Option(metavar="[KIND@]R", help="Programs per second; Poisson unless gamma:cv=3@R, ramp:to=2@R, ...; "
           "default: the workload's."),
]  # fmt: skip
ProgramsOrSeconds = Annotated[
    str | None,
    Option("--n", "-n", metavar="N|SECONDSs",
           help="Programs, or seconds of arrivals (900s); default 700, or the whole trace."),
]  # fmt: skip


@verb
def run(
    system: Annotated[str, Option(help="A system of the catalog (bench ls systems), or pkg.mod:Class.")],
    workload: Annotated[
        str,
        Option(help="NAME, NAME:PRESET, a file or folder, FORMAT@PATH, or pkg.mod:fn (bench ls workloads)."),
    ],
    rate: Rate = None,
    concurrency: Annotated[int | None, Option(help="Programs at all times (closed loop), no rate.")] = None,
    n: ProgramsOrSeconds = None,
    seed: Seed = 1,
    seeds: Annotated[int, Option(help="Run this many seeds from --seed on; intervals over them.")] = 1,
    model: Annotated[
        str | None,
        Option(help="Model of the latency table (llama-3.1-8b); with --engine vllm a folder or hub id."),
    ] = None,
    gpu: Annotated[str | None, Option(help="GPU of the latency table (a100).")] = None,
    replicas: Annotated[int, Option(help="Engines.")] = 1,
    engine: Annotated[str, Option(help="sim, reference, vllm-virtual, or vllm: real servers.")] = "sim",
    scheduler: Annotated[str | None, Option(help="Replace the system's scheduler.")] = None,
    router: Annotated[str | None, Option(help="Replace the system's router.")] = None,
    knob: Annotated[
        list[str] | None,
        Option(
            metavar="SLOT.NAME=VALUE",
            help="scheduler.beta=3, engine.max_num_seqs=64, engine.kv_scale=.5, engine.preemption=swap, "
            "latency.prefill=1.1 (decode, overhead), live.load=.8, ... (repeatable).",
        ),
    ] = None,
    param: Params = None,
    on_overflow: Annotated[
        str | None, Option(help="refuse, skip or truncate prompts over the context or the KV cache.")
    ] = None,
    out: Out = Path("results"),
    force: Annotated[bool, Option("--force", help="Run again even if the result is there.")] = False,
    as_json: Json = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would run, and where.")] = False,
) -> None:
    """Run a system on a workload and print its numbers."""
    from bench.errors import UsageError

    form, path = split_format(workload)
    per_s, arrivals = rate_and_arrivals(rate)
    programs, horizon = programs_or_horizon(n)
    model, gpu = subject(engine, model, gpu)
    config = RunConfig(
        system, path, per_s, concurrency, programs, seed, model, gpu, replicas, engine, scheduler, router,
        pairs(knob or [], "--knob"), pairs(param or [], "-p"), on_overflow, form, out, horizon, arrivals,
    )  # fmt: skip
    if not 1 <= seeds <= MOST_SEEDS:
        raise UsageError(f"--seeds must be at least 1 and at most {MOST_SEEDS:,}, got {seeds:,}")
    if dry_run:
        _dry_run(config, seeds, as_json)
        return
    summary, folder = _summary(config, seeds, force)
    if as_json:
        emit_json(summary)
        return
    from bench.cards import shown
    from reports.summary import footer, render

    page(render(shown(summary, folder)))
    if config.engine == LIVE_ENGINE:
        from bench.cli.live import shown as beside

        beside(summary["beside"], summary["notes"])
    typer.echo(footer(summary))


def _summary(config: RunConfig, seeds: int, force: bool) -> tuple[dict[str, Any], Path]:
    """The summary, and the folder of the (first) result."""
    if config.engine == LIVE_ENGINE:
        return _live(config, seeds, force)
    from bench.run import run as run_one
    from bench.run import run_seeds

    with progress(f"{config.system} on {config.workload}") as report:
        if seeds > 1:
            results, summary = run_seeds(config, seeds, force=force, progress=report)
            return summary, results[0].folder
        result = run_one(config, force=force, progress=report)
        return result.summary, result.folder


def _live(config: RunConfig, seeds: int, force: bool) -> tuple[dict[str, Any], Path]:
    from bench.cli.live import say
    from bench.live.cells import run_live
    from bench.manifest import command_line
    from bench.run import RunResult, pooled

    configs = [config.with_seed(config.seed + i) for i in range(seeds)]
    with progress(f"{config.system} on {config.workload}") as report:
        swept = run_live(configs, say, force=force, progress=report)
    results = [result for result in swept.outcomes if isinstance(result, RunResult)]
    rows, notes = swept.beside(say)
    beside = {"beside": rows, "notes": notes}
    if seeds == 1:
        return results[0].summary | beside, results[0].folder
    return pooled(results) | {"repeat": command_line(config.words(seeds))} | beside, results[0].folder


def _dry_run(config: RunConfig, seeds: int, as_json: bool) -> None:
    from bench.manifest import command_line
    from bench.plan import check_fit, plan

    if config.engine == LIVE_ENGINE:
        from bench.cli.live import plan_only

        plan_only([config.with_seed(config.seed + i) for i in range(seeds)], as_json)
        return
    plans = [plan(config.with_seed(config.seed + i)) for i in range(seeds)]
    check_fit(plans[0])
    facts = _facts(plans, command_line(config.words(seeds)))
    if as_json:
        emit_json(facts)
        return
    for name, value in facts.items():
        typer.echo(f"{name:<9} {value}")


def _facts(plans: list[Plan], command: str) -> dict[str, Any]:
    first = plans[0]
    there = sum((p.folder / "summary.json").exists() for p in plans)
    offline = first.offline
    knobs = ", ".join(f"{k}={v}" for k, v in first.spec.scheduler_knobs) or "no knobs"
    return {
        "system": f"{first.config.system}: {first.spec.scheduler} ({knobs}), router {first.spec.router}",
        "workload": f"{first.programs.name}, {first.load}",
        "programs": f"{len(first.programs.programs)} with {offline.calls} calls, "
        f"{offline.prompt_tokens} prompt and {offline.output_tokens} output tokens",
        "engine": first.badge,
        "results": " ".join(str(p.folder) for p in plans) + (f" ({there} already there)" if there else ""),
        "repeat": command,
    }
