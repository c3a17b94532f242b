"""The line at the door: by rank, and by how long one has waited."""

from __future__ import annotations

from bisect import bisect_left, insort

from systems.gates.ledger import Program

Rank = tuple[float, ...]
"""Smaller goes first."""
Group = tuple[int, int]
"""(importance, engine or -1): programs that wait for the same room, smaller groups first."""

_Arrival = tuple[float, int, int]
"""(since when it waits, how many came into the line before, program)."""


class Line:
    """Programs that wait, in groups, each in order of rank; and all of them in order of arrival in the line.

    Adding and removing cost O(log n) comparisons and a move of pointers. Who came into the line is told by
    ``Program.waits``, which may be long before ``put``; equal times go by the order of ``put``.
    """

    def __init__(self) -> None:
        self._groups: dict[Group, list[tuple[Rank, int]]] = {}
        self._places: dict[int, tuple[Group, tuple[Rank, int]]] = {}
        self._programs: dict[int, Program] = {}
        self._arrivals: list[_Arrival] = []
        self._arrived: dict[int, _Arrival] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._programs)

    def __contains__(self, program: Program) -> bool:
        return program.id in self._programs

    def put(self, program: Program, group: Group, rank: Rank) -> None:
        """Into the line, or to another place in it; its arrival stays."""
        self._out(program)
        place = (rank, program.id)
        insort(self._groups.setdefault(group, []), place)
        self._places[program.id] = (group, place)
        if program.id not in self._programs:
            self._count += 1
            arrival = self._arrived[program.id] = (program.waits, self._count, program.id)
            insort(self._arrivals, arrival)
            self._programs[program.id] = program

    def take(self, program: Program) -> None:
        """Out of the line, if it is there."""
        self._out(program)
        if self._programs.pop(program.id, None) is not None:
            arrival = self._arrived.pop(program.id)
            del self._arrivals[bisect_left(self._arrivals, arrival)]

    def groups(self) -> list[Group]:
        """Who is asked first."""
        return sorted(self._groups)

    def first(self, group: Group) -> Program | None:
        """The one whose turn it is in its group."""
        places = self._groups.get(group)
        return self._programs[places[0][1]] if places else None

    def longest(self) -> Program | None:
        """Who has waited longest."""
        return self._programs[self._arrivals[0][2]] if self._arrivals else None

    def _out(self, program: Program) -> None:
        group, place = self._places.pop(program.id, (None, None))
        if group is None or place is None:
            return
        places = self._groups[group]
        del places[bisect_left(places, place)]
        if not places:
            del self._groups[group]
