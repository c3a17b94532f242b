"""What a report says of agents, from finished cells.

Cells are together only if nothing but their seed differs (``bench.comparing.group_id``), and groups are
compared only where ``bench compare`` would.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import pandas as pd

from bench.agents.environments import environments
from bench.agents.mcnemar import solved
from bench.agents.pairs import kept_of, outcomes_between
from bench.comparing import Cell as Compared
from bench.comparing import Group, group_id, refused
from bench.gather import Cell, Labels, place
from bench.stats import Estimate, t_interval
from reports.agents_page import section
from reports.page import Section

_DIGITS = 4
"""Of a group's id, where labels do not tell it from another."""


@dataclass(frozen=True)
class Seeds:
    """Cells that differ only in their seed, by seed. ``where``: workload, model, load, system as they are
    labelled; ``sandbox``: kind, "" without."""

    id: str
    where: Mapping[str, str]
    sandbox: str
    cells: Mapping[int, Cell]
    mark: str = ""
    """Digits of the id, where the names of another group are the same."""

    @property
    def workload(self) -> str:
        """What ran; with model, load, sandbox and system this names the group."""
        return f"{self.where['workload']}{self.mark}"

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is called by."""
        return (*self.where.values(), self.sandbox, self.mark)

    @cached_property
    def group(self) -> Group:
        """As ``bench compare`` takes it."""
        cells = {s: Compared(c.folder, c.summary, c.manifest) for s, c in self.cells.items()}
        return Group(self.id, next(iter(self.cells.values())).folder.parent, cells)


def groups_of(cells: Sequence[Cell], labels: Labels) -> list[Seeds]:
    """The cells that have agents, seeds together; no two groups have the same names.

    A second cell of a seed (other programs under the same configuration) stands in a group of its own.
    """
    grouped: dict[tuple[str, int], dict[int, Cell]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for cell in cells:
        if cell.summary.get("agents") is not None:
            name, seed = group_id(cell.manifest["identity"]), int(cell.summary["seed"])
            grouped.setdefault((name, seen[name, seed]), {})[seed] = cell
            seen[name, seed] += 1
    found = list(_named(grouped, labels))
    return sorted(found, key=lambda one: (one.where["workload"], one.sandbox, one.where["system"], one.mark))


def _named(grouped: Mapping[tuple[str, int], Mapping[int, Cell]], labels: Labels) -> Iterator[Seeds]:
    found = []
    for (name, nth), cells in grouped.items():
        first = cells[min(cells)]
        where = {k: str(v) for k, v in place(first, labels).items() if k != "rate"}
        words = where["workload"].split(" ")  # where tools run is told beside
        where["workload"] = " ".join(word for word in words if not word.startswith("sandbox="))
        found.append(Seeds(f"{name}-{nth}" if nth else name, where, _sandbox(first), cells))
    taken = Counter(one.names for one in found)
    for one in found:
        digits, dash, again = one.id.partition("-")
        yield one if taken[one.names] == 1 else replace(one, mark=f" #{digits[:_DIGITS]}{dash}{again}")


def _sandbox(cell: Cell) -> str:
    return str(cell.summary["agents"]["sandbox"])


def sections(cells: Sequence[Cell]) -> list[Section]:
    """The section of agents; none where none ran. Raises MissingError for a cell that is damaged."""
    agents = [cell for cell in cells if cell.summary.get("agents") is not None]
    if not agents:
        return []
    groups = groups_of(agents, Labels.of(agents))
    return [section([_row(one) for one in groups], _kinds(groups), _pairs(groups))]


def frame(cells: Sequence[Cell], labels: Labels) -> pd.DataFrame:
    """Frame ``agents`` of a report (docs/report.md): a row per place and load, seeds together; empty without
    agents. Where tools ran stands with the workload. Raises MissingError for a cell that is damaged."""
    return pd.DataFrame([_point(one) for one in groups_of(cells, labels)])


def _point(seeds: Seeds) -> dict[str, Any]:
    row, where = _row(seeds), seeds.where
    success, latency = row["success"], row["latency"]
    solved = {end: 100 * success[name] for end, name in _ENDS.items()}
    took = {end: math.nan if latency[name] is None else latency[name] for end, name in _ENDS.items()}
    return {
        "workload": " in ".join(filter(None, [seeds.workload, seeds.sandbox])),
        **{name: where[name] for name in ("model", "load", "system")},
        "seeds": len(seeds.cells), "programs": success["n"],
        **{f"solved{end}": value for end, value in solved.items()},
        **{f"latency{end}": value for end, value in took.items()},
    }  # fmt: skip


_ENDS = {"": "value", "_low": "low", "_high": "high"}


def _row(seeds: Seeds) -> dict[str, Any]:
    """Seeds of one group together: successes by task, other numbers are means over seeds."""
    cells = list(seeds.cells.values())
    agents = [cell.summary["agents"] for cell in cells]
    rows = [row for cell in cells for row in kept_of(cell.folder)["programs"]]
    success = solved((row["task"], row["success"]) for row in rows)
    x, n = success["x"], success["n"]
    busy = sum(one["cost"].get("busy_s", 0.0) for one in agents)
    known = all("busy_s" in one["cost"] for one in agents)
    return {
        "workload": f"{seeds.workload} on {seeds.where['model']}, {seeds.where['load']}",
        "sandbox": seeds.sandbox, "system": seeds.where["system"],
        "seeds": len(cells), "success": success, "latency": _latency(cells),
        "shares": {name: _mean([one["shares"][name] for one in agents]) for name in ("llm", "tool", "rest")},
        "per_program": busy / n if known and n else None,
        "per_solved": busy / x if known and x else None,
    }  # fmt: skip


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


def _kinds(groups: Sequence[Seeds]) -> list[dict[str, Any]]:
    """Costs of each kind of sandbox, over all cells that used it."""
    events: dict[str, list[Any]] = {}
    leaks: dict[str, list[str]] = {}
    for one in groups:
        for cell in one.cells.values() if one.sandbox else ():
            kept = kept_of(cell.folder)
            own = [
                {**event, "sandbox": f"{cell.folder.name} {event['sandbox']}"} for event in kept["sandboxes"]
            ]
            events.setdefault(one.sandbox, []).extend(own)
            leaks.setdefault(one.sandbox, []).extend(kept["totals"]["environment"]["leaks"])
    return [{"kind": kind, **environments(found, leaks[kind])} for kind, found in sorted(events.items())]


def _pairs(groups: Sequence[Seeds]) -> list[dict[str, Any]]:
    """Every two systems of one workload, model, load and sandbox, on the seeds that both have."""
    found = []
    for base, new in combinations(groups, 2):
        if not _comparable(base, new):
            continue
        told = outcomes_between(base.group.cells, new.group.cells, True)
        if told is not None:
            what = f"{base.where['workload']}{f' in {base.sandbox}' if base.sandbox else ''}"
            where = f"{what} on {base.where['model']}, {base.where['load']}"
            systems = f"BASE {_system(base)}, NEW {_system(new)}"
            found.append({"what": f"{where}, {systems}", "outcomes": told})
    return found


def _system(seeds: Seeds) -> str:
    return f"{seeds.where['system']}{seeds.mark}"


def _comparable(base: Seeds, new: Seeds) -> bool:
    """Whether only what serves differs: by its names, and by all that ``bench compare`` wants to be equal."""
    same = [{**one.where, "system": one.sandbox} for one in (base, new)]
    if same[0] != same[1] or base.where["system"] == new.where["system"]:
        return False
    seeds = sorted(base.cells.keys() & new.cells.keys())
    return not refused(base.group, new.group, seeds)
