"""Engine-seconds in money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HOUR = 3600.0


def priced(cost: Mapping[str, Any], per_hour: float | None) -> dict[str, Any]:
    """With money beside the seconds: of what was busy, and of all the time that engines were held."""
    if per_hour is None or "busy_s" not in cost:
        return dict(cost)
    each = {name: cost[name] for name in ("per_program", "per_solved")}
    price = {name: None if v is None else per_hour / HOUR * v for name, v in each.items()}
    held = per_hour / HOUR * cost["held_s"]
    return {**cost, "price": {"per_hour": per_hour, **price, "run_held": held}}
