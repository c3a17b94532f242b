"""One run: plan, drive, log, check, summarise. ``bench run`` and sweeps use this."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.card import card
from bench.checks import check
from bench.config import RunConfig
from bench.errors import BenchError, Exit, InvalidRun, MissingError, UsageError
from bench.eventlog import EventLog, read_tables
from bench.files import explain, locked, ready, write_json
from bench.foreign import is_foreign, policies_of
from bench.manifest import command_line, git_state, manifest
from bench.plan import Plan, Planned, check_fit, plan
from bench.records import EngineTotals, RunEnd, Sink
from bench.stats import Estimate
from bench.summary import Context, describe, pool
from bench.tables import FORMAT, TABLES
from systems.process_table import ProcessTable
from systems.protocols import Router, Scheduler
from workloads.base import ProgramSpec
from workloads.dryrun import dry_run

Progress = Callable[[int, int], None]
"""(programs done, programs)."""
Drive = Callable[[Any, Sink, Progress | None], RunEnd]
"""Runs a plan into a sink."""

EXTRAS = ("client.json", "steps.json", "predicted.json", "agents.json")
"""What a live cell has beside the tables."""
BYTES_PER_CALL = 150
"""Disk a logged call takes, its decisions included (measured: 50 without preemption)."""


@dataclass(frozen=True)
class RunResult:
    """A finished cell. ``cached``: it was there already."""

    summary: dict[str, Any]
    folder: Path
    cached: bool


class Interrupted(BenchError):
    """Ctrl-C; nothing that was finished is lost."""

    exit_code = Exit.INTERRUPTED


def run(config: RunConfig, *, force: bool = False, progress: Progress | None = None) -> RunResult:
    """Run one cell, or return it if it is there. Raises BenchError."""
    return execute(plan(config), force=force, progress=progress)


def run_seeds(
    config: RunConfig, seeds: int, *, force: bool = False, progress: Progress | None = None
) -> tuple[list[RunResult], dict[str, Any]]:
    """``seeds`` cells from ``config.seed`` on, and their pooled summary.

    Each seed is a cell of its own: an interrupted series goes on where it stopped.
    """
    results = [run(config.with_seed(config.seed + i), force=force, progress=progress) for i in range(seeds)]
    return results, pooled(results) | {"repeat": command_line(config.words(seeds))}


def pooled(results: Sequence[RunResult]) -> dict[str, Any]:
    """The summary over several seeds of one configuration."""
    first = results[0].summary
    names = ("system", "workload", "load", "badge", "card", "skipped", "repaired", "where")
    whole = {k: first[k] for k in names}
    whole |= pool([r.summary for r in results])
    if all("agents" in r.summary for r in results):
        from bench.agents.totals import pooled as pooled_agents

        whole["agents"] = pooled_agents(results)
    return whole | {"results": " ".join(str(r.folder) for r in results)}


def execute(
    plan: Planned, *, force: bool = False, progress: Progress | None = None, drive: Drive | None = None
) -> RunResult:
    """Run a plan unless its result is there; ``drive``: how, on virtual time if None. Raises BenchError."""
    folder = plan.folder
    if not force and (found := kept(plan)) is not None:
        return found
    check_fit(plan)
    if drive is None:
        check_engine(plan.config.engine)
    ready(folder, 10_000_000 + BYTES_PER_CALL * plan.calls_estimate)
    with locked(folder):
        if not force and (found := kept(plan)) is not None:
            return found
        try:
            return _fresh(plan, progress, drive or drive_plan)
        except OSError as error:
            raise explain(error, folder) from None


def kept(plan: Planned) -> RunResult | None:
    """The finished result of a plan, under the name the system was asked for by.

    None if there is none that can be read: such a cell is run again.
    """
    try:
        result = complete(plan.folder)
    except MissingError:
        return None
    notes = ["already there (--force runs it again)", result.summary.get("note")]
    result.summary.update(system=plan.config.system, note="; ".join(str(n) for n in notes if n))
    return result


def complete(folder: Path) -> RunResult:
    """As ``finished``, and with all its tables: a result that need not be made again. Raises MissingError."""
    if lost := [name for name in TABLES if not (folder / f"{name}.parquet").is_file()]:
        raise MissingError(f"{folder} lacks its table {lost[0]}")
    return finished(folder)


def finished(folder: Path) -> RunResult:
    """The result in ``folder``; ``note`` says if other code made it. Raises MissingError."""
    try:
        summary = _object(folder / "summary.json")
        made = _object(folder / "manifest.json")
    except (OSError, ValueError) as error:
        raise MissingError(
            f"{folder} holds no finished result ({error}): run it again (the same bench run, or with --force)"
        ) from None
    if summary.get("format") != FORMAT:
        raise MissingError(
            f"{folder} was written in format {summary.get('format')}, this is {FORMAT}: run it again"
        )
    summary["results"] = str(folder)
    try:
        summary["card"] = card(made)  # with the errors that are known now
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MissingError(f"{folder}/manifest.json is damaged ({error}): run it again") from None
    before, now = str(made.get("git", {}).get("commit")), _commit()
    if before != now:
        summary["note"] = f"made by commit {before[:10]}, this is {now[:10]}"
    return RunResult(summary, folder, cached=True)


def _object(path: Path) -> dict[str, Any]:
    """A JSON object in a file. Raises OSError or ValueError, naming the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path.name}: not a JSON object")
    return data


@cache
def _commit() -> str:
    return str(git_state().get("commit"))


def _fresh(plan: Planned, progress: Progress | None, drive: Drive) -> RunResult:
    folder, command = plan.folder, command_line(plan.config.words())
    _clear(folder)
    made = manifest(plan.identity, plan.details(), command)
    write_json(folder / "manifest.json", made)
    began = time.perf_counter()
    plan.begin_offline()
    result_hash, end = _logged(plan, progress, drive)
    summary = {
        "format": FORMAT,
        "cell": plan.cell,
        "result_hash": result_hash,
        "system": plan.config.system,
        "workload": plan.programs.name,
        "load": plan.load,
        "seed": plan.config.seed,
        "badge": plan.badge,
        "card": card(made),
        "skipped": dict(plan.programs.skipped),
        "repaired": dict(plan.programs.repaired),
        "where": dict(plan.programs.where),
        **_numbers(plan, end),
        "wall_s": round(time.perf_counter() - began, 3),
        "results": str(folder),
        "repeat": command,
    }
    write_json(folder / "summary.json", summary)
    return RunResult(json.loads((folder / "summary.json").read_text(encoding="utf-8")), folder, cached=False)


def _clear(folder: Path) -> None:
    """Remove an unfinished (or replaced) run: the summary first, then the rest."""
    (folder / "summary.json").unlink(missing_ok=True)
    for name in ["manifest.json", *(f"{table}.parquet" for table in TABLES)]:
        (folder / name).unlink(missing_ok=True)
    for extra in EXTRAS:
        (folder / extra).unlink(missing_ok=True)
    for part in folder.glob("*.part"):  # nobody else writes here (``locked``), but may try the folder
        part.unlink(missing_ok=True)


def _logged(plan: Planned, progress: Progress | None, drive: Drive) -> tuple[str, RunEnd]:
    """Run into the event log; returns the result hash, and what the driver reports."""
    log = EventLog(plan.folder)
    try:
        end = drive(plan, log, progress)
        for number, stats in enumerate(end.engines):
            log.total(EngineTotals.of(number, stats))
        return log.finish(), end
    except KeyboardInterrupt:
        log.abort()
        raise Interrupted(
            "interrupted: this cell will be run again, finished results are kept; "
            "the same command goes on from here"
        ) from None
    except pa.ArrowException as error:
        log.abort()
        raise MissingError(f"cannot write the event log in {plan.folder}: {error}") from None
    except BaseException:
        log.abort()
        raise


def drive_plan(plan: Plan, sink: Sink, progress: Progress | None = None) -> RunEnd:
    """Build the deployment and drive the programs through it.

    Raises MissingError if this machine cannot run the engine, InvalidRun if a program
    failed, UsageError if a policy from outside the project did.
    """
    from bench.drivers.virtual import ProgramError, drive
    from systems.catalog import build_table
    from systems.checked import PolicyError
    from systems.engines.vllm_virtual import EngineUnavailable

    count = len(plan.programs.programs)
    table = build_table(plan.spec)
    try:
        schedulers, router = _policies(plan, table)
        governing = governing_policies(plan)
        engines = _engines(plan, schedulers)
        try:
            return drive(
                plan.programs.programs,
                times=plan.times,
                concurrency=plan.config.concurrency,
                engines=engines,
                router=router,
                table=table,
                sink=sink,
                remaining=output_tokens if plan.spec.clairvoyant else None,
                cores=plan.config.tool_cores(),
                **governing,
                progress=None if progress is None else lambda done, _now: progress(done, count),
            )
        finally:
            for engine in engines:
                engine.close()
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None
    except ProgramError as error:
        raise InvalidRun(str(error)) from error
    except PolicyError as error:
        raise UsageError(str(error)) from error


def _policies(plan: Plan, table: ProcessTable) -> tuple[list[Scheduler], Router]:
    """A scheduler for each engine, and the router; those from outside the project are watched.

    vLLM's worker gets a copy of the scheduler, with its table: there it stays as it is.
    """
    from systems.catalog import build_router, build_scheduler
    from systems.checked import Checked, CheckedRouter

    spec = plan.spec
    with policies_of(spec.scheduler, spec.router):
        schedulers = [build_scheduler(spec, table) for _ in range(plan.config.replicas)]
        router = build_router(spec)
    if ":" in spec.scheduler and plan.config.engine != "vllm-virtual":
        schedulers = [Checked(scheduler, spec.scheduler) for scheduler in schedulers]
    return schedulers, CheckedRouter(router, spec.router) if ":" in spec.router else router


def governing_policies(plan: Planned) -> dict[str, Any]:
    """Gate, retention and environment of a system, by name; those that do nothing are left out."""
    from systems.catalog import build_environment, build_gate, build_retention
    from systems.checked import Watched
    from systems.slots import DEFAULTS

    spec, found = plan.spec, {}
    builders = {"gate": build_gate, "retention": build_retention, "environment": build_environment}
    for slot, build in builders.items():
        name = getattr(spec, slot)
        if name == DEFAULTS[slot]:
            continue
        with policies_of(name):
            policy: Any = build(spec)
        found[slot] = Watched(policy, f"{slot} {name}") if ":" in name else policy
    return found


def output_tokens(spec: ProgramSpec) -> float:
    """A program's output tokens, all told: what a clairvoyant scheduler may know."""
    return float(dry_run(spec).total_output)


def _engines(plan: Plan, schedulers: Sequence[Any]) -> list[Any]:
    kind = engine_class(plan.config.engine)
    moving = (plan.serving.transfer,) if plan.config.engine != "vllm-virtual" else ()  # V1 moves nothing
    return [kind(i, plan.engine, scheduler, plan.latency, *moving) for i, scheduler in enumerate(schedulers)]


def check_engine(name: str) -> None:
    """Raises MissingError if this machine lacks what the engine needs."""
    if name == "vllm-virtual":
        from systems.engines.vllm_virtual import EngineUnavailable, vllm_python

        try:
            vllm_python()
        except EngineUnavailable as error:
            raise MissingError(str(error)) from None


def engine_class(name: str) -> Any:
    """The class of an engine by its name."""
    if name == "sim":
        from systems.engines.sim import SimEngine

        return SimEngine
    if name == "reference":
        from systems.engines.reference import ReferenceEngine

        return ReferenceEngine
    from systems.engines.vllm_virtual import VllmVirtualEngine

    return VllmVirtualEngine


def _numbers(plan: Planned, end: RunEnd) -> dict[str, Any]:
    tables, facts = read_tables(plan.folder), plan.offline
    knobs: dict[str, Any] = dict(plan.spec.scheduler_knobs)
    context = Context(
        kv_blocks=plan.engine.kv_blocks,
        levels=len(knobs.get("bounds", ())) + 1,
        optimum=facts.optimum if facts.calls else math.nan,
        closed_loop=plan.config.concurrency is not None,
        max_num_seqs=plan.engine.max_num_seqs,
        warnings=plan.traps(),
        horizon=plan.config.horizon,
    )
    check(tables, facts, plan.config.workload if is_foreign(plan.config.workload) else "")
    found, said = describe(tables, context), dict(end.said)
    for name in ("metrics", "warnings"):
        found[name] = _joined(found[name], said.pop(name, None))
    for prefix, why in said.pop("unknown", {}).items():
        unknown = Estimate(math.nan, note=why)._asdict()
        found["metrics"] |= {name: unknown for name in found["metrics"] if name.startswith(prefix)}
    return found | said


def _joined(found: Any, more: Any) -> Any:
    if not more:
        return found
    return {**found, **more} if isinstance(found, dict) else [*found, *more]
