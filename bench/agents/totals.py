"""What a summary has of agents, without anything that runs them: money beside seconds, seeds together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.agents.mcnemar import wilson
from bench.agents.money import priced
from bench.run import RunResult


def with_price(result: RunResult, per_hour: float | None) -> RunResult:
    """The result with money in its summary, where a price is given: it is no part of what is kept."""
    if per_hour is None or "agents" not in result.summary:
        return result
    agents = result.summary["agents"]
    cost = priced(agents["cost"], per_hour)
    return replace(result, summary={**result.summary, "agents": {**agents, "cost": cost}})


def pooled(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``agents`` of several seeds: successes together, and what is the same for all."""
    x, n = (sum(part["success"][name] for part in parts) for name in ("x", "n"))
    same = {k: v for k, v in parts[0].items() if all(part.get(k) == v for part in parts)}
    return {**same, "success": {"x": x, "n": n, **wilson(x, n)._asdict()}}
