"""The same tasks under two systems: which were solved, and how long programs took (``bench compare``)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.agents.mcnemar import Key, mcnemar, wilson
from bench.comparing import Cell
from bench.errors import MissingError
from bench.stats import Estimate, t_interval

FILE = "agents.json"
OVER_PROGRAMS = "t over the logarithms of pairs of programs"
DEPENDENT = "programs of one run share its queues: this interval describes these runs, seeds decide"


class One(NamedTuple):
    """A program: ``latency_s`` from its begin to its end."""

    success: bool
    finished: bool
    latency_s: float


def programs_of(cells: Mapping[int, Cell]) -> dict[Key, One] | None:
    """By seed and task; None if a cell has no agents. Raises MissingError for a file that is damaged."""
    found: dict[Key, One] = {}
    for seed, cell in cells.items():
        rows = _rows(cell.folder)
        if rows is None:
            return None
        found |= {(seed, task): one for task, one in rows.items()}
    return found


def _rows(folder: Path) -> dict[str, One] | None:
    if not (folder / FILE).is_file():
        return None
    try:
        return {
            str(row["task"]): One(bool(row["success"]), row["outcome"] == "finished", float(row["latency_s"]))
            for row in kept_of(folder)["programs"]
        }
    except (LookupError, TypeError) as error:
        raise _damaged(folder, error) from None


def kept_of(folder: Path) -> dict[str, Any]:
    """``agents.json`` of a cell. Raises MissingError."""
    try:
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return {name: data[name] for name in ("programs", "totals", "sandboxes")}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _damaged(folder, error) from None


def _damaged(folder: Path, error: Exception) -> MissingError:
    return MissingError(f"{folder / FILE} cannot be read ({error!r}): run that cell again with --force")


def outcomes_between(
    base: Mapping[int, Cell], new: Mapping[int, Cell], paired: bool
) -> dict[str, Any] | None:
    """Plain data for the comparison: both sides' shares with Wilson intervals; of the same seeds, pairs with
    exact McNemar and the ratio of latencies. None where not both have agents."""
    before, after = programs_of(base), programs_of(new)
    if before is None or after is None:
        return None
    found = {"base": _share(before), "new": _share(after)}
    if not paired:
        return {**found, "mcnemar": None, "latency": None}
    success = [{key: one.success for key, one in side.items()} for side in (before, after)]
    return {
        **found, "mcnemar": mcnemar(*success).as_json(), "latency": latency_ratio(before, after)._asdict(),
    }  # fmt: skip


def _share(side: Mapping[Key, One]) -> dict[str, Any]:
    x, n = sum(one.success for one in side.values()), len(side)
    return {"x": x, "n": n, **wilson(x, n)._asdict()}


def latency_ratio(base: Mapping[Key, One], new: Mapping[Key, One]) -> Estimate:
    """NEW / BASE: geometric mean over the programs that both sides finished, with its 95 % interval."""
    logs = [
        math.log(new[key].latency_s / base[key].latency_s)
        for key in sorted(base.keys() & new.keys())
        if all(side[key].finished and side[key].latency_s > 0 for side in (base, new))
    ]
    if not logs:
        return Estimate(math.nan, note="no program finished on both sides")
    one = t_interval(logs, OVER_PROGRAMS)
    low, high = math.exp(one.low), math.exp(one.high)
    return Estimate(math.exp(one.value), low, high, one.method, one.note or DEPENDENT)
