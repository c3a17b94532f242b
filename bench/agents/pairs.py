"""Whether the same tasks were solved under two systems: what ``bench compare`` says of agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.agents.mcnemar import Key, mcnemar, wilson
from bench.comparing import Cell

FILE = "agents.json"


def solved(cells: Mapping[int, Cell]) -> dict[Key, bool] | None:
    """By seed and task; None if a cell has no agents. Raises nothing: what cannot be read is not there."""
    found: dict[Key, bool] = {}
    for seed, cell in cells.items():
        rows = _rows(cell.folder)
        if rows is None:
            return None
        found |= {(seed, str(row["task"])): bool(row["success"]) for row in rows}
    return found


def _rows(folder: Path) -> list[Mapping[str, Any]] | None:
    try:
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return list(data["programs"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def outcomes_between(
    base: Mapping[int, Cell], new: Mapping[int, Cell], paired: bool
) -> dict[str, Any] | None:
    """Plain data for the comparison: both sides' shares with Wilson intervals, and, of the same seeds, pairs
    and exact McNemar. None where not both have agents."""
    before, after = solved(base), solved(new)
    if before is None or after is None:
        return None
    pairs = mcnemar(before, after).as_json() if paired else None
    return {"base": _share(before), "new": _share(after), "mcnemar": pairs}


def _share(side: Mapping[Key, bool]) -> dict[str, Any]:
    x, n = sum(side.values()), len(side)
    return {"x": x, "n": n, **wilson(x, n)._asdict()}
