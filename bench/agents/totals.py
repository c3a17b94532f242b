"""What a summary has of agents, without anything that runs them: money beside seconds, seeds together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.agents.mcnemar import solved
from bench.agents.money import priced
from bench.agents.pairs import kept_of
from bench.run import RunResult


def with_price(result: RunResult, per_hour: float | None) -> RunResult:
    """The result with money in its summary, where a price is given: it is no part of what is kept."""
    if per_hour is None or "agents" not in result.summary:
        return result
    agents = result.summary["agents"]
    cost = priced(agents["cost"], per_hour)
    return replace(result, summary={**result.summary, "agents": {**agents, "cost": cost}})


def pooled(results: Sequence[RunResult]) -> dict[str, Any]:
    """``agents`` of several seeds: successes together, by task, and what is the same for all.

    Raises MissingError for a cell that is damaged."""
    parts = [result.summary["agents"] for result in results]
    same = {k: v for k, v in parts[0].items() if all(part.get(k) == v for part in parts)}
    rows = [row for result in results for row in kept_of(result.folder)["programs"]]
    return {**same, "success": solved((row["task"], row["success"]) for row in rows)}
