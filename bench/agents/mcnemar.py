"""Exact tests and intervals for outcomes that are yes or no.

The unit is the task. Under greedy decoding a task that is run again, in another lap of a suite or under
another seed, is the same observation again: a thousand repeats of three tasks are three tasks.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

from bench.stats import Estimate

WILSON = "Wilson"
MCNEMAR = "exact McNemar"
OVER_TASKS = "exact McNemar over tasks"
SIGN_TEST = "exact sign test over tasks (repeats of a task differ)"
_LAP = re.compile(r"(\.\d+|-again\d+)$")
Key = tuple[int, str]
"""(seed, task): the same on both sides of a pair."""


class Paired(NamedTuple):
    """Programs of two runs on the same tasks, in order.

    ``base_only``, ``new_only``: programs that only that side solved; ``base_tasks``, ``new_tasks``: tasks
    that it solved more often than the other; ``p``: two-sided, exact, of the latter two counts; ``method``:
    what test that is; ``tasks``: distinct ones that were compared; ``alone``: programs that one side lacks.
    """

    both: int
    neither: int
    base_only: tuple[Key, ...]
    new_only: tuple[Key, ...]
    tasks: int
    base_tasks: tuple[str, ...]
    new_tasks: tuple[str, ...]
    p: float
    method: str
    alone: int = 0

    @property
    def pairs(self) -> int:
        """How many programs were compared."""
        return self.both + self.neither + len(self.base_only) + len(self.new_only)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        told = {name: [list(key) for key in getattr(self, name)] for name in ("base_only", "new_only")}
        named = {name: list(getattr(self, name)) for name in ("base_tasks", "new_tasks")}
        return {
            **self._asdict(), **told, **named, "pairs": self.pairs,
            "base": self.both + len(self.base_only), "new": self.both + len(self.new_only),
        }  # fmt: skip


def mcnemar(base: Mapping[Key, bool], new: Mapping[Key, bool]) -> Paired:
    """Two sides' outcomes by seed and task: pairs are what both have, and a task counts once.

    Where all repeats of each task came out alike this is McNemar's test (McNemar 1947) over tasks. Where
    they did not, it is the sign test over tasks, each by the sign of its mean difference.
    """
    shared = sorted(base.keys() & new.keys())
    base_only = tuple(key for key in shared if base[key] and not new[key])
    new_only = tuple(key for key in shared if new[key] and not base[key])
    both = sum(base[key] and new[key] for key in shared)
    neither = len(shared) - both - len(base_only) - len(new_only)
    names = tasks_of(name for _, name in shared)
    by_task: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for key in shared:
        by_task[names[key[1]]].append((base[key], new[key]))
    more = {task: sum(b - a for a, b in found) for task, found in by_task.items()}
    base_tasks = tuple(task for task in sorted(more) if more[task] < 0)
    new_tasks = tuple(task for task in sorted(more) if more[task] > 0)
    return Paired(
        both, neither, base_only, new_only, len(by_task), base_tasks, new_tasks,
        exact_p(len(base_tasks), len(new_tasks)), _method(by_task, len(shared)),
        len(base.keys() ^ new.keys()),
    )  # fmt: skip


def _method(by_task: Mapping[str, list[tuple[bool, bool]]], pairs: int) -> str:
    if len(by_task) == pairs:
        return MCNEMAR
    return OVER_TASKS if all(len(set(found)) == 1 for found in by_task.values()) else SIGN_TEST


def tasks_of(names: Iterable[str]) -> dict[str, str]:
    """Of each program's name the task that it is of.

    A suite that begins again names the lap (``lru.2``, ``game24-1-1-8-8-again1``). That is taken off where
    the task has also run under its plain name, so a name that only looks like it stays whole.
    """
    known = set(names)
    plain = {name: _LAP.sub("", name) for name in known}
    return {name: task if task in known else name for name, task in plain.items()}


def exact_p(b: int, c: int) -> float:
    """Two-sided p of ``b`` against ``c`` discordant tasks, if either side were as likely; 1 without any."""
    n, k = b + c, min(b, c)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float(2 * tail / 2**n))


def solved(outcomes: Iterable[tuple[str, bool]]) -> dict[str, Any]:
    """Programs' outcomes by name, over laps and seeds, as plain data.

    ``x`` of ``n`` programs were solved; ``value``: mean over ``tasks`` distinct tasks of the share of each
    that was, with Wilson's interval of that many. A share between 0 and 1 varies less than a yes or no does,
    so the interval is no narrower than it should be.
    """
    found = list(outcomes)
    names = tasks_of(name for name, _ in found)
    by_task: dict[str, list[bool]] = defaultdict(list)
    for name, success in found:
        by_task[names[name]].append(success)
    shares = math.fsum(sum(each) / len(each) for each in by_task.values())
    estimate = wilson(shares, len(by_task))
    return {
        "x": sum(success for _, success in found), "n": len(found), "tasks": len(by_task),
        **estimate._asdict(),
    }  # fmt: skip


def wilson(x: float, n: int, level: float = 0.95) -> Estimate:
    """``x`` of ``n`` with Wilson's interval (Wilson 1927), which is one for 0 and ``n`` of ``n``, too."""
    if not n:
        return Estimate(math.nan, note="no programs")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, z2 = x / n, z * z / n
    middle = (share + z2 / 2) / (1 + z2)
    half = z / (1 + z2) * math.sqrt(share * (1 - share) / n + z2 / (4 * n))
    low, high = 0.0 if x == 0 else middle - half, 1.0 if x == n else middle + half
    return Estimate(share, low, high, WILSON)
