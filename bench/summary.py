"""From the tables to the summary: the numbers of a run under flat names, and over several seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bench import balance, holds, kv_cost, metrics, steps, windows
from bench.eventlog import Tables
from bench.stats import VERDICT_SEEDS, Estimate, t_interval
from bench.traps import crowded, roomy


@dataclass(frozen=True)
class Context:
    """What the numbers need beside the tables.

    ``kv_blocks``: of each engine. ``optimum``: prefix hit rate an
    infinite cache would reach (share of prompt tokens). ``levels``: queues of
    the scheduler, 1 where it has only one. ``max_num_seqs``: places in an engine's
    batch, 0 where not known. ``warnings``: about the settings. ``horizon``: seconds in
    which programs arrive, None for the last arrival.
    """

    kv_blocks: int
    levels: int = 1
    optimum: float = math.nan
    closed_loop: bool = False
    max_num_seqs: int = 0
    warnings: Sequence[str] = ()
    horizon: float | None = None


def measure(tables: Tables, context: Context) -> dict[str, Estimate]:
    """Every number of a run, by its flat name (``program.response.p95``)."""
    done = metrics.finished(tables.programs)
    order = tables.programs.sort_values(["t_arrive", "program"], kind="stable").program.tolist()
    window = metrics.throughput(tables.programs, tables.calls)
    calls = metrics.call_latency(tables.calls, order)
    rows = kv_cost.chains(tables.calls)
    horizon = windows.last_arrival(tables.programs) if context.horizon is None else context.horizon
    groups: dict[str, Mapping[str, float | Estimate]] = {
        "throughput": window,
        "measured": metrics.measured_rates(tables.programs, tables.calls),
        "program.response": metrics.program_latency(done),
        "program.s_per_token": metrics.seconds_per_token(done),
        **{f"call.{name}": numbers for name, numbers in calls.items()},
        "wait": metrics.wait_exec(tables.programs),
        "exec": metrics.exec_split(tables.calls),
        "kv": metrics.kv_hits(tables.calls) | {"optimum": context.optimum},
        "kv_cost": _kv_cost(tables, rows, context),
        "moved": balance.moved(rows),
        "imbalance": balance.imbalance(_while_busy(tables), context.kv_blocks),
        "preemptions": metrics.preemptions(tables.calls, tables.totals),
        "utilisation": metrics.utilisation(tables.totals, window["window_s"], context.kv_blocks),
        "transient": {} if context.closed_loop else windows.transient(tables.programs, horizon),
        "sustained": {}
        if context.closed_loop
        else windows.sustained(tables.programs, horizon)
        | windows.keeps_up(tables.calls, tables.engine, horizon),
        "kind": {} if context.closed_loop else windows.of_kinds(tables.programs, horizon),
        "littles_law": metrics.littles_law(tables.programs),
        "steps": {
            **steps.rates(tables.programs, tables.calls),
            **steps.littles_law(tables.programs, tables.calls),
        },
        "hold": holds.holds(tables.calls, order),
        "worst_turn": holds.worst_turns(tables.calls, order),
        "gate": holds.gate(tables.decisions),
        "keep": holds.keep(tables.decisions),
        "env": holds.environment(tables.decisions, metrics.busy_window(tables.programs)[1]),
        "system": {
            "mean_programs": metrics.in_system(tables.programs, metrics.busy_window(tables.programs)),
            "finished_share": len(done) / max(1, len(tables.programs)),
        },
    }
    flat = {f"{group}.{name}": value for group, numbers in groups.items() for name, value in numbers.items()}
    return {k: v if isinstance(v, Estimate) else Estimate(v) for k, v in flat.items()}


def _while_busy(tables: Tables) -> pd.DataFrame:
    """The engines' samples; of those after the last program's end (leases of a gate) the time is that end."""
    return tables.engine.assign(time=tables.engine.time.clip(*metrics.busy_window(tables.programs)))


def _kv_cost(tables: Tables, rows: pd.DataFrame, context: Context) -> metrics.Numbers:
    """What KV was used for; no more was lost than an infinite cache would have found."""
    hits = metrics.kv_hits(tables.calls)["hit_rate"]
    most = (context.optimum - hits) * float(tables.calls.prompt_tokens.sum())
    most = math.inf if math.isnan(most) else max(0.0, most)
    start, end = metrics.busy_window(tables.programs)
    samples = _while_busy(tables)
    found = kv_cost.account(tables.programs, rows, samples, tables.totals, context.kv_blocks, most)
    return kv_cost.numbers(found, tables.calls, end - start)


def kinds(tables: Tables) -> dict[str, dict[str, float]]:
    """Per kind of program, where there are several: mixed means hide who pays."""
    done = metrics.finished(tables.programs)
    groups = {str(k): part for k, part in done.groupby("kind", observed=True)}
    if len(groups) < 2:
        return {}
    return {
        kind: {
            "programs": float(len(part)),
            "response_s": metrics.program_latency(part)["mean"].value,
            "s_per_token": metrics.seconds_per_token(part)["mean_of_ratios"].value,
        }
        for kind, part in groups.items()
    }


def describe(tables: Tables, context: Context) -> dict[str, Any]:
    """The part of the summary that is a pure function of the event log."""
    levels = metrics.level_occupancy(tables.calls)
    trend = {"verdict": "closed loop"} if context.closed_loop else metrics.trend(tables.programs)
    warnings = [*context.warnings, crowded(levels, context.levels), _roomy(tables, context)]
    if trend["verdict"] == "growing":
        warnings.append(
            "the backlog grows: this rate is not sustained, so latencies depend on the number of programs"
        )
    return {
        "outcomes": metrics.outcomes(tables.programs),
        "calls": len(tables.calls),
        "metrics": {name: estimate._asdict() for name, estimate in measure(tables, context).items()},
        "kinds": kinds(tables),
        "levels": levels,
        "queues": context.levels,
        "trend": trend,
        "warnings": [w for w in warnings if w],
        "engines": tables.totals.to_dict("records"),
    }


def _roomy(tables: Tables, context: Context) -> str:
    """A warning where no engine was ever too small; empty where its places are not known."""
    if not context.max_num_seqs:
        return ""
    engine = tables.engine
    full = (engine.running >= context.max_num_seqs).any() or (engine.kv_used >= context.kv_blocks).any()
    share = metrics.wait_exec(tables.programs)["wait_share"]
    return roomy(share, float(tables.calls.preemptions.sum()), bool(full))


def pool(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several seeds of one configuration: each number's mean with a t interval over seeds."""
    names = [name for name in summaries[0]["metrics"] if all(name in s["metrics"] for s in summaries)]
    pooled = {name: _over_seeds([s["metrics"][name] for s in summaries])._asdict() for name in names}
    few = len(summaries) < VERDICT_SEEDS
    outcomes: dict[str, int] = {}
    for summary in summaries:
        for name, count in summary["outcomes"].items():
            outcomes[name] = outcomes.get(name, 0) + count
    return {
        "seeds": [s["seed"] for s in summaries],
        "outcomes": outcomes,
        "calls": sum(s["calls"] for s in summaries),
        "metrics": pooled,
        "levels": _mean_shares([s["levels"] for s in summaries]),
        "queues": summaries[0]["queues"],
        "trend": {"verdict": ", ".join(dict.fromkeys(str(s["trend"]["verdict"]) for s in summaries))},
        "warnings": list(dict.fromkeys(w for s in summaries for w in s["warnings"]))
        + ([f"exploratory: verdicts need at least {VERDICT_SEEDS} seeds"] if few else []),
    }


def _mean_shares(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    levels = sorted({level for part in parts for level in part}, key=int)
    return {level: math.fsum(part.get(level, 0.0) for part in parts) / len(parts) for level in levels}


def _over_seeds(parts: Sequence[Mapping[str, Any]]) -> Estimate:
    values = [math.nan if p["value"] is None else float(p["value"]) for p in parts]
    missing = [str(p["note"]) for p, v in zip(parts, values, strict=True) if math.isnan(v)]
    if missing:
        return Estimate(math.nan, note=missing[0] or f"undefined for {len(missing)} of {len(parts)} seeds")
    return t_interval(values)
