"""What a report says of agents, from finished cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from bench.agents.environments import environments
from bench.agents.mcnemar import wilson
from bench.agents.pairs import kept_of, outcomes_between
from bench.comparing import Cell as Compared
from bench.gather import Cell, Labels, place
from bench.stats import Estimate, t_interval
from reports.agents_page import section
from reports.page import Section

Place = tuple[str, str, str]
"""(workload, sandbox, system)."""


def sections(cells: Sequence[Cell]) -> list[Section]:
    """The section of agents; none where none ran. Raises MissingError for a cell that is damaged."""
    groups: dict[Place, list[Cell]] = {}
    for cell in cells:
        if (agents := cell.summary.get("agents")) is not None:
            where = str(cell.summary["workload"]), str(agents["sandbox"]), str(cell.summary["system"])
            groups.setdefault(where, []).append(cell)
    if not groups:
        return []
    groups = dict(sorted(groups.items()))
    return [section([_row(*one) for one in groups.items()], _kinds(groups), _pairs(groups))]


def frame(cells: Sequence[Cell], labels: Labels) -> pd.DataFrame:
    """Frame ``agents`` of a report (docs/report.md): a row per place and load, seeds together; empty without
    agents. Where tools ran stands with the workload."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        if (agents := cell.summary.get("agents")) is not None:
            where = place(cell, labels)
            name = " in ".join(filter(None, [where["workload"], agents["sandbox"]]))
            groups.setdefault((name, where["model"], where["load"], where["system"]), []).append(cell)
    return pd.DataFrame([_point(*one) for one in groups.items()])


def _point(where: tuple[str, ...], cells: Sequence[Cell]) -> dict[str, Any]:
    row = _row(("", "", ""), cells)
    success, latency = row["success"], row["latency"]
    solved = {end: 100 * success[name] for end, name in _ENDS.items()}
    took = {end: math.nan if latency[name] is None else latency[name] for end, name in _ENDS.items()}
    return {
        **dict(zip(("workload", "model", "load", "system"), where, strict=True)),
        "seeds": len(cells), "programs": success["n"],
        **{f"solved{end}": value for end, value in solved.items()},
        **{f"latency{end}": value for end, value in took.items()},
    }  # fmt: skip


_ENDS = {"": "value", "_low": "low", "_high": "high"}


def _row(where: Place, cells: Sequence[Cell]) -> dict[str, Any]:
    """Seeds of one place together: successes add up, other numbers are means over seeds."""
    agents = [cell.summary["agents"] for cell in cells]
    x, n = (sum(one["success"][name] for one in agents) for name in ("x", "n"))
    busy = sum(one["cost"].get("busy_s", 0.0) for one in agents)
    known = all("busy_s" in one["cost"] for one in agents)
    return {
        **dict(zip(("workload", "sandbox", "system"), where, strict=True)),
        "seeds": len(cells),
        "success": {"x": x, "n": n, **wilson(x, n)._asdict()},
        "latency": _latency(cells),
        "shares": {name: _mean([one["shares"][name] for one in agents]) for name in ("llm", "tool", "rest")},
        "per_program": busy / n if known and n else None,
        "per_solved": busy / x if known and x else None,
    }


def _latency(cells: Sequence[Cell]) -> dict[str, Any]:
    found = [cell.summary["metrics"]["program.response.mean"] for cell in cells]
    if len(found) == 1:
        return dict(found[0])
    values = [float("nan") if one["value"] is None else float(one["value"]) for one in found]
    one: Estimate = t_interval(values)
    return one._asdict()


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _kinds(groups: Mapping[Place, Sequence[Cell]]) -> list[dict[str, Any]]:
    """Costs of each kind of sandbox, over all cells that used it."""
    events: dict[str, list[Any]] = {}
    leaks: dict[str, list[str]] = {}
    for (_, kind, _), cells in groups.items():
        for cell in cells if kind else ():
            kept = kept_of(cell.folder)
            own = [
                {**event, "sandbox": f"{cell.folder.name} {event['sandbox']}"} for event in kept["sandboxes"]
            ]
            events.setdefault(kind, []).extend(own)
            leaks.setdefault(kind, []).extend(kept["totals"]["environment"]["leaks"])
    return [{"kind": kind, **environments(found, leaks[kind])} for kind, found in sorted(events.items())]


def _pairs(groups: Mapping[Place, Sequence[Cell]]) -> list[dict[str, Any]]:
    """Every two systems of one workload and sandbox, on the seeds that both have."""
    found = []
    for (one, base), (other, new) in combinations(groups.items(), 2):
        if one[:2] != other[:2]:
            continue
        sides = [{int(c.summary["seed"]): _compared(c) for c in cells} for cells in (base, new)]
        told = outcomes_between(sides[0], sides[1], True)
        if told is not None:
            where = f"{one[0]}{f' in {one[1]}' if one[1] else ''}"
            found.append({"what": f"{where}, BASE {one[2]}, NEW {other[2]}", "outcomes": told})
    return found


def _compared(cell: Cell) -> Compared:
    return Compared(cell.folder, cell.summary, cell.manifest)
