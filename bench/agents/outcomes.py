"""What became of the agents' programs: solved or not and why, tokens against the script, costs.

Kept in a cell as ``agents.json``; its totals are ``agents`` in the summary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.agents.cost import cost_of
from bench.agents.environments import environments, metrics_of
from bench.agents.mcnemar import solved
from bench.agents.plan import AgentPlan
from bench.agents.rows import AgentRun, dropped_s, key_of
from bench.live.logs import EngineLog
from bench.live.rows import Rows
from bench.records import ProgramRow
from bench.stats import Estimate

FILE = "agents.json"
DROPPED = 0.01
"""Of programs' time: more that critical paths leave out is a warning."""
LLM = ("cp_wait_s", "cp_prefill_s", "cp_reprefill_s", "cp_decode_s", "cp_swap_s")


def outcomes(plan: AgentPlan, run: AgentRun, logs: Sequence[EngineLog], rows: Rows) -> dict[str, Any]:
    """All of it as plain data: a row per program, and ``totals`` (which go into the summary)."""
    programs = program_rows(plan, run, {row.program: row.t_end - row.t_arrive for row in rows.programs})
    success = solved((row["task"], row["success"]) for row in programs)
    sandbox_events = run.of("sandbox")
    leaks = [*(leak for over in run.of("over") for leak in over["leaks"]), *run.left]
    totals = {
        **plan.facts_of_agents(),
        "success": success,
        "why_not": dict(Counter(row["why"] or row["outcome"] for row in programs if not row["success"])),
        "tokens": tokens(run, logs) if plan.asked.scripted else {},
        "calls": dict(Counter(call.outcome for call in run.calls)),
        "shares": shares(rows.programs),
        "path": dropped(run, logs, rows.programs),
        "environment": environments(sandbox_events, leaks) if plan.sandbox else {"leaks": leaks},
        "cost": cost_of(logs, len(programs), success["x"], run.took, plan.served.kind),
    }
    return {
        "run": run.name, "programs": programs, "totals": totals, "sandboxes": sandbox_rows(sandbox_events),
        "versions_in_host": dict(run.versions),
    }  # fmt: skip


def sandbox_rows(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The host's sandbox events as they came, times on its clock (s of CLOCK_MONOTONIC)."""
    return [{k: v for k, v in event.items() if k not in ("event", "t")} for event in events]


def program_rows(plan: AgentPlan, run: AgentRun, latencies: Mapping[int, float]) -> list[dict[str, Any]]:
    """Of every program: its task, outcome, whether it was solved, why not, seconds from begin to end, calls,
    tools, what it noted."""
    calls = Counter(call.program for call in run.calls)
    tools = Counter(tool["program"] for tool in run.of("tool"))
    found = []
    for one in sorted(run.of("ended"), key=lambda event: int(event["program"])):
        number = one["program"]
        found.append(
            {
                "program": number, "task": plan.tasks[number].name, "outcome": one["outcome"],
                "success": bool(one["success"]), "why": one["why"], "latency_s": latencies[number],
                "calls": calls[number], "tools": tools[number], "notes": one.get("notes") or {},
            }
        )  # fmt: skip
    return found


def tokens(run: AgentRun, logs: Sequence[EngineLog]) -> dict[str, Any]:
    """Decode tokens of answered calls: by the schedulers' logs (else by the engines' replies), by the script;
    ``differ`` lists the calls (at most ten) where the two are not the same."""
    rows = {key: int(row["output_tokens"]) for log in logs for key, row in log.calls.items()}
    engine = scripted = 0
    differ = []
    answered = [call for call in run.calls if call.outcome == "finished"]
    for call in answered:
        got = rows.get(key_of(run.name, call.name), call.output_tokens) if logs else call.output_tokens
        engine, scripted = engine + got, scripted + call.scripted_tokens
        if got != call.scripted_tokens:
            differ.append(key_of(run.name, call.name))
    return {
        "engine": engine, "scripted": scripted, "difference": engine - scripted, "calls": len(answered),
        "calls_differ": len(differ), "differ": differ[:10],
    }  # fmt: skip


def shares(programs: Sequence[ProgramRow]) -> dict[str, float | None]:
    """Of finished programs' time, on critical paths: the LLM's (wait and execution), tools', and the rest's.

    The rest: sandboxes made ready, the agent itself, relay, gateway and network, calls that were given up."""
    done = [row for row in programs if row.outcome == "finished"]
    whole = math.fsum(row.t_end - row.t_arrive for row in done)
    parts = {
        "llm": math.fsum(getattr(row, name) for row in done for name in LLM),
        "tool": math.fsum(row.cp_tool_s for row in done),
        "rest": math.fsum(row.cp_overhead_s + row.cp_think_s for row in done),
    }
    return {name: part / whole if whole else None for name, part in parts.items()}


def dropped(run: AgentRun, logs: Sequence[EngineLog], programs: Sequence[ProgramRow]) -> dict[str, Any]:
    """Of programs' time, what critical paths leave out though a call or tool went on (s, share)."""
    seconds, whole = dropped_s(run, logs), math.fsum(row.t_end - row.t_arrive for row in programs)
    return {"dropped_s": seconds, "share": seconds / whole if whole else 0.0}


def said(found: Mapping[str, Any], run: AgentRun) -> dict[str, Any]:
    """What the summary has beside the tables' numbers: totals, metrics, warnings."""
    totals = found["totals"]
    share, cost = totals["success"], totals["cost"]
    success = Estimate(*(share[name] for name in Estimate._fields))
    metrics = {"agent.success": success, **metrics_of(run.of("sandbox"))}
    metrics |= {
        f"agent.{k}_share": Estimate(math.nan if v is None else v) for k, v in totals["shares"].items()
    }
    metrics["agent.leaks"] = Estimate(len(totals["environment"]["leaks"]))
    if "busy_s" in cost:
        metrics["agent.engine_s"] = Estimate(cost["per_program"])
    if totals["tokens"]:
        metrics["agent.token_difference"] = Estimate(totals["tokens"]["difference"])
    kept = {k: v for k, v in totals.items() if k != "cost"}
    kept["cost"] = {k: v for k, v in cost.items() if k != "by_program"}
    return {
        "agents": kept,
        "metrics": {name: estimate._asdict() for name, estimate in metrics.items()},
        "warnings": warnings(totals, run),
    }


def warnings(totals: Mapping[str, Any], run: AgentRun) -> list[str]:
    """What a reader must not overlook."""
    found = []
    words = totals["tokens"]
    if words and words["calls_differ"]:
        found.append(
            f"the engines decoded {words['engine']} tokens and the scripts say {words['scripted']}: "
            f"{words['calls_differ']} calls differ, {words['differ'][0]} first"
        )
    if totals["path"]["share"] > DROPPED:
        found.append(
            f"critical paths leave out {totals['path']['dropped_s']:.3g} s in which calls or tools went on "
            f"({totals['path']['share']:.1%} of programs' time): they overlap what came after them, and are "
            "told as overhead"
        )
    leaks = totals["environment"]["leaks"]
    if leaks:
        found.append(f"{len(leaks)} things were left after the run: {'; '.join(leaks[:3])}")
    broken = [one for one in run.of("ended") if one["outcome"] != "finished"]
    if broken:
        kinds = ", ".join(f"{n} {name}" for name, n in Counter(one["outcome"] for one in broken).items())
        found.append(
            f"{len(broken)} programs did not come to their end ({kinds}), program {broken[0]['program']} "
            f"first: {broken[0]['why']}; latencies are of those that did"
        )
    return found
