"""The same tasks under two systems: which were solved, and how long programs took (``bench compare``)."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.agents.mcnemar import Key, mcnemar, solved, tasks_of
from bench.comparing import Cell
from bench.errors import MissingError
from bench.stats import Estimate, t_interval

FILE = "agents.json"
OVER_PROGRAMS = "t over the logarithms of pairs of programs"
OVER_TASKS = "t over tasks, each by the mean logarithm of its pairs"
SCRIPTED = "scripted: the same by construction unless a call breaks"
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


def scripted(cell: Cell) -> bool:
    """Whether a script answered in the model's place, so that outcomes are its own."""
    told = cell.summary.get("agents") or {}
    return bool(told.get("llm") == "scripted")


def outcomes_between(
    base: Mapping[int, Cell], new: Mapping[int, Cell], paired: bool
) -> dict[str, Any] | None:
    """Plain data for the comparison: both sides' shares with Wilson intervals; of the same seeds, pairs with
    an exact test and the ratio of latencies. None where not both have agents.

    Where scripts answered on both sides (``scripted``) there is no p: it would test what cannot differ.
    """
    before, after = programs_of(base), programs_of(new)
    if before is None or after is None:
        return None
    alike = all(scripted(cell) for side in (base, new) for cell in side.values())
    found = {"base": _share(before), "new": _share(after), "scripted": alike}
    if not paired:
        return {**found, "mcnemar": None, "latency": None}
    success = [{key: one.success for key, one in side.items()} for side in (before, after)]
    tested = mcnemar(*success).as_json()
    if alike:
        tested |= {"p": None, "method": "", "note": SCRIPTED}
    return {**found, "mcnemar": tested, "latency": latency_ratio(before, after)._asdict()}


def _share(side: Mapping[Key, One]) -> dict[str, Any]:
    return solved((name, one.success) for (_, name), one in side.items())


def latency_ratio(base: Mapping[Key, One], new: Mapping[Key, One]) -> Estimate:
    """NEW / BASE: geometric mean over the tasks that both sides finished (over all pairs of each), with its
    95 % interval over tasks."""
    shared = sorted(base.keys() & new.keys())
    names = tasks_of(name for _, name in shared)
    logs: dict[str, list[float]] = defaultdict(list)
    for key in shared:
        if all(side[key].finished and side[key].latency_s > 0 for side in (base, new)):
            logs[names[key[1]]].append(math.log(new[key].latency_s / base[key].latency_s))
    if not logs:
        return Estimate(math.nan, note="no program finished on both sides")
    pairs = sum(map(len, logs.values()))
    method = OVER_PROGRAMS if pairs == len(logs) else OVER_TASKS
    one = t_interval([math.fsum(each) / len(each) for each in logs.values()], method)
    note = f"{len(logs)} tasks, {pairs} pairs; {one.note or DEPENDENT}"
    return Estimate(math.exp(one.value), math.exp(one.low), math.exp(one.high), one.method, note)
