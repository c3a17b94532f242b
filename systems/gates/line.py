"""The line at the door: by rank, and by how long one has waited."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from systems.gates.ledger import Program

Rank = tuple[float, ...]
"""Smaller goes first."""
Group = tuple[int, int]
"""(importance, engine or -1): programs that wait for the same room, smaller groups first."""


class Line:
    """Programs that wait, in groups, each in order of rank; and all of them in order of arrival in the line.

    Adding and removing cost O(log n) comparisons and a move of pointers. ``since`` of a program in the line
    is when it came into it.
    """

    def __init__(self) -> None:
        self._groups: dict[Group, list[tuple[Rank, int]]] = {}
        self._places: dict[int, tuple[Group, tuple[Rank, int]]] = {}
        self._arrivals: dict[int, Program] = {}

    def __len__(self) -> int:
        return len(self._arrivals)

    def __contains__(self, program: Program) -> bool:
        return program.id in self._arrivals

    def put(self, program: Program, group: Group, rank: Rank) -> None:
        """Into the line, or to another place in it; its arrival stays."""
        self._out(program)
        place = (rank, program.id)
        insort(self._groups.setdefault(group, []), place)
        self._places[program.id] = (group, place)
        self._arrivals.setdefault(program.id, program)

    def take(self, program: Program) -> None:
        """Out of the line, if it is there."""
        self._out(program)
        self._arrivals.pop(program.id, None)

    def groups(self) -> list[Group]:
        """Who is asked first."""
        return sorted(self._groups)

    def first(self, group: Group) -> Program | None:
        """The one whose turn it is in its group."""
        places = self._groups.get(group)
        return self._arrivals[places[0][1]] if places else None

    def longest(self) -> Program | None:
        """Who has waited longest."""
        return next(iter(self._arrivals.values()), None)

    def by_arrival(self) -> Iterator[Program]:
        """All of them, who has waited longest first; the line may not change meanwhile."""
        return iter(self._arrivals.values())

    def _out(self, program: Program) -> None:
        group, place = self._places.pop(program.id, (None, None))
        if group is None or place is None:
            return
        places = self._groups[group]
        del places[bisect_left(places, place)]
        if not places:
            del self._groups[group]
