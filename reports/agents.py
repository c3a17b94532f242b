"""Lines about agents: whether tasks were solved, what programs cost, what their sandboxes took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reports.numbers import MISSING, number, percent

LISTED = 5
"""Tasks that are named; more are counted."""
TIMED = ("init", "exec", "teardown")
MB = 1e6


def lines(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of a result's page, in order; none where no agents ran."""
    agents = summary.get("agents")
    if not agents:
        return []
    metrics = summary["metrics"]
    return [
        ("agents", _what(agents)),
        ("solved", share(agents["success"]) + _why(agents.get("why_not") or {})),
        ("tokens", _tokens(agents.get("tokens") or {})),
        ("time of programs", _shares(metrics)),
        ("tools' sandboxes", _sandboxes(agents.get("environment") or {}, agents.get("sandbox", ""))),
        ("cost", _cost(agents.get("cost") or {})),
    ]


def share(entry: Mapping[str, Any]) -> str:
    """``17 of 24 (70.8 %) [51, 85]``: with Wilson's 95 % interval, over tasks where some ran again."""
    tasks, n = entry.get("tasks", entry["n"]), entry["n"]
    text = f"{entry['x']} of {n} ({percent(entry['value'])})"
    if tasks != n:
        text = f"{entry['x']} of {n} runs of {tasks} tasks ({percent(entry['value'])} of tasks)"
    if entry.get("low") is None:
        return text
    over = "" if tasks == n else " over tasks"
    return f"{text}, 95 % by Wilson{over} [{percent(entry['low'])}, {percent(entry['high'])}]"


def _what(agents: Mapping[str, Any]) -> str:
    said = {"scripted": "replies scripted, the engine's work real", "model": "replies of the model"}
    versions = ", ".join(f"{name} {text}" for name, text in (agents.get("versions") or {}).items())
    words = [
        f"{agents.get('agent')} on {agents.get('suite')}",
        said.get(str(agents.get("llm")), ""),
        versions,
    ]
    return "; ".join(word for word in words if word)


def _why(reasons: Mapping[str, int]) -> str:
    first = [f"{count} x {why}" for why, count in list(reasons.items())[:LISTED]]
    more = len(reasons) - len(first)
    return "".join(f"; {text}" for text in [*first, *([f"and {more} more reasons"] if more else [])])


def _tokens(tokens: Mapping[str, Any]) -> str:
    if not tokens:
        return ""
    return (
        f"engines decoded {tokens['engine']:,}, scripts say {tokens['scripted']:,} (difference "
        f"{tokens['difference']}) in {tokens['calls']:,} calls"
    )


def _shares(metrics: Mapping[str, Any]) -> str:
    def one(name: str) -> str:
        return percent((metrics.get(f"agent.{name}_share") or {}).get("value"))

    return f"on critical paths: LLM {one('llm')}, tools {one('tool')}, the rest {one('rest')}"


def _sandboxes(found: Mapping[str, Any], kind: str) -> str:
    leaks = found.get("leaks") or []
    left = f"{len(leaks)} things left behind" if leaks else "nothing left behind"
    if not kind or "sandboxes" not in found:
        return left if leaks else ""
    parts = [f"{what} {_timed(found[what])}" for what in TIMED]
    disk = found["disk"]["mean"]
    parts.append(f"disk {MISSING if disk is None else f'{number(disk / MB)} MB'}")
    parts += [f"{count} {what}" for what, count in found["trouble"].items() if count]
    return f"{found['sandboxes']} of {kind}: {', '.join(parts)}; {left}"


def _timed(one: Mapping[str, Any]) -> str:
    """Milliseconds: the median where there is one, else the mean; over how many."""
    name = "p50" if one.get("p50") is not None else "mean"
    if one[name] is None:
        return MISSING
    failed = f", {one['failed']} failed" if one["failed"] else ""
    return f"{name} {number(1e3 * one[name])} ms ({one['n']}{failed})"


def _cost(cost: Mapping[str, Any]) -> str:
    if "per_program" not in cost:
        return str(cost.get("note", ""))
    unit = cost["unit"]
    text = f"{number(cost['per_program'])} {unit} per program, {number(cost['per_solved'])} per solved one"
    text += f" ({cost['counted']}; {number(cost['busy_s'])} s busy of {number(cost['held_s'])} s held)"
    if price := cost.get("price"):
        text += (
            f"; at {number(price['per_hour'])} an hour: {number(price['per_program'])} per program, "
            f"{number(price['per_solved'])} per solved one; all the time that was held: "
            f"{number(price['run_held'])}"
        )
    return text


def solved(found: Mapping[str, Any]) -> list[str]:
    """Of a comparison: both sides, and what only one of them solved; none where no agents ran."""
    outcomes = found.get("outcomes")
    if not outcomes:
        return []
    told = [f"solved: BASE {share(outcomes['base'])}; NEW {share(outcomes['new'])}"]
    if (pairs := outcomes.get("mcnemar")) is None:
        return [*told, "outcomes of other seeds are no pairs: no McNemar test"]
    only = [
        f"{len(pairs[f'{side}_only'])} solved by {side.upper()} only{_named(pairs[f'{side}_only'])}"
        for side in ("base", "new")
    ]
    alone = f"; {pairs['alone']} programs have no partner" if pairs["alone"] else ""
    same = "the same outcome in all" if not (pairs["base_only"] or pairs["new_only"]) else "; ".join(only)
    told.append(f"{_pairs(pairs)}: {same}; {_tested(pairs)}{alone}")
    return [*told, *_faster(outcomes.get("latency"))]


def _pairs(pairs: Mapping[str, Any]) -> str:
    text = f"{pairs['pairs']} pairs"
    return text if pairs["tasks"] == pairs["pairs"] else f"{text} of {pairs['tasks']} tasks"


def _tested(pairs: Mapping[str, Any]) -> str:
    """The test; why there is none."""
    if pairs["p"] is None:
        return str(pairs["note"])
    text = f"{pairs['method']} p {number(pairs['p'])}"
    if pairs["tasks"] == pairs["pairs"]:
        return text
    return f"tasks: {len(pairs['base_tasks'])} to BASE, {len(pairs['new_tasks'])} to NEW; {text}"


def _faster(ratio: Mapping[str, Any] | None) -> list[str]:
    """Programs' latencies, pair by pair."""
    if not ratio or ratio["value"] is None or math.isnan(ratio["value"]):
        return []
    text = f"latency of programs, NEW / BASE, pair by pair: {ratio['value']:.3f}"
    if ratio["low"] is not None and not math.isnan(ratio["low"]):
        text += f" [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    return [f"{text} ({ratio['note']})"]


def _named(keys: Sequence[Sequence[Any]]) -> str:
    if not keys:
        return ""
    first = ", ".join(f"{task} (seed {seed})" for seed, task in keys[:LISTED])
    return f" ({first}{f' and {len(keys) - LISTED} more' if len(keys) > LISTED else ''})"
