"""From "this came before that" to a program: sequences and branches that are waited for.

Traces tell when things happened; a program is written in joins. Any order made of "one
after the other" and "beside each other" is given exactly; one that is not (two branches of
which only one is waited for half-way) as a tree: everything follows the last of what it followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workloads.base import WorkloadError

Plan = list["int | list[Plan]"]
"""In order: the number of an item, or plans that run beside each other and are all waited for."""
_DEEPEST = 100
MOST = 1500
"""Items one agent may have without a pause."""


@dataclass(slots=True)
class Happened:
    """An item with its recorded times (any unit), and the items it is known to have followed."""

    start: int
    end: int
    followed: tuple[int, ...] = ()


def before(items: Sequence[Happened]) -> list[int]:
    """For each item the set (as bits) of all items before it. ``items`` are sorted by start.

    Known: what an item ``followed``. Inferred: an item came after one that had ended, if nothing
    that is known to follow that one began meanwhile (the line it belongs to was waiting).
    """
    following: dict[int, int] = {}  # the first known follower of each item
    for j, item in enumerate(items):
        for i in item.followed:
            following.setdefault(i, j)
    found: list[int] = []
    for j, item in enumerate(items):
        mask = 0
        for i in range(j - 1, -1, -1):
            if mask >> i & 1 or items[i].end > item.start:
                continue
            follower = following.get(i)
            waiting = follower is None or items[follower].start >= item.end
            if i in item.followed or waiting:
                mask |= 1 << i | found[i]
        found.append(mask)
    return found


def arrange(items: Sequence[Happened]) -> tuple[Plan, bool]:
    """(plan, is the order exact) of items sorted by start.

    Raises WorkloadError where more than MOST of them overlap.
    """
    if len(items) <= MOST:
        return plan(before(items))
    result: Plan = []
    exact = True
    for first, end in _apart(items):
        if end - first > MOST:
            raise WorkloadError(f"more than {MOST} calls and tools of one agent without a pause")
        part, kept = plan(before([Happened(item.start, item.end) for item in items[first:end]]))
        result += _shifted(part, first)
        exact = exact and kept
    return result, exact


def _apart(items: Sequence[Happened]) -> list[tuple[int, int]]:
    """The ranges of items between which nothing goes on."""
    cuts, latest = [0], items[0].end
    for i, item in enumerate(items):
        if i and item.start >= latest:
            cuts.append(i)
        latest = max(latest, item.end)
    return list(pairwise((*cuts, len(items))))


def _shifted(some: Plan, by: int) -> Plan:
    return [
        item + by if isinstance(item, int) else [_shifted(branch, by) for branch in item] for item in some
    ]


def plan(earlier: Sequence[int]) -> tuple[Plan, bool]:
    """(plan, is the order exact) of items of which ``earlier[j]`` are those before j, as bits."""
    builder = _Builder(earlier)
    return builder.plan(list(range(len(earlier))), 0), builder.exact


class _Builder:
    def __init__(self, earlier: Sequence[int]) -> None:
        self.earlier = earlier
        self.exact = True

    def plan(self, items: list[int], depth: int) -> Plan:
        """The plan of some of the items, which are sorted."""
        blocks = self.sequence(items)
        if len(blocks) == len(items):
            return [*items]
        result: Plan = []
        for block in blocks:
            result += [block[0]] if len(block) == 1 else self.beside(block, depth)
        return result

    def sequence(self, items: list[int]) -> list[list[int]]:
        """The shortest blocks of which each is wholly before the next."""
        common = [0] * (len(items) + 1)  # what is before all items from here on
        common[-1] = -1
        for k in range(len(items) - 1, -1, -1):
            common[k] = common[k + 1] & self.earlier[items[k]]
        blocks: list[list[int]] = [[]]
        passed = 0
        for k, item in enumerate(items):
            if k and passed & common[k] == passed:
                blocks.append([])
            blocks[-1].append(item)
            passed |= 1 << item
        return blocks

    def beside(self, items: list[int], depth: int) -> Plan:
        """Branches, if the items fall into parts of which none waits for another."""
        parts = self.parts(items)
        if len(parts) > 1 and depth < _DEEPEST:
            return [[self.plan(part, depth + 1) for part in parts]]
        self.exact = False
        return self.tree(items)

    def parts(self, items: list[int]) -> list[list[int]]:
        whole = sum(1 << item for item in items)
        masks: list[int] = []
        for item in items:
            mask, apart = 1 << item | self.earlier[item] & whole, []
            for other in masks:
                if other & mask:
                    mask |= other
                else:
                    apart.append(other)
            masks = [*apart, mask]
        found = [[item for item in items if mask >> item & 1] for mask in masks]
        return sorted(found)

    def tree(self, items: list[int]) -> Plan:
        """Everything after the last to begin of what it followed."""
        whole = sum(1 << item for item in items)
        plans: dict[int, list[Plan]] = {}
        for item in reversed(items):
            after = plans.pop(item, [])
            own: Plan = [item, *(after[0] if len(after) == 1 else [after] if after else [])]
            plans.setdefault((self.earlier[item] & whole).bit_length() - 1, []).insert(0, own)
        roots = plans[-1]
        return roots[0] if len(roots) == 1 else [roots]
