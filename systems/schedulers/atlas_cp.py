"""ATLAS, and inside a program the critical path first (a reading note's reading of Autellix).

The paper does not rank calls inside a program. Here the queue of a call, and
the places its program has in that queue, are those of ``atlas``; among the
waiting calls of one program in one queue the one with the longest observed
path (``atlas-dag``'s number) takes the first of these places. So programs are
to each other exactly as under ``atlas`` at each moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.process_table import ProcessTable
from systems.schedulers.levels import DEFAULT_BETA, Levels
from vocabulary import GRID, Call, Slot, Snapshot, Usage


class Place:
    """A call here. ``path``: its longest observed path, in the scheduler's unit; ``served``:
    what it had received when it last stopped, ``given`` when it got its slot."""

    __slots__ = ("call", "given", "path", "served")

    def __init__(self, call: Call, path: float) -> None:
        self.call = call
        self.path = path
        self.served = 0.0
        self.given = 0.0


class AtlasCp(Levels):
    """As ``atlas``; waiting calls of one program change places among themselves. Knobs of ``Levels``.

    A moved call keeps what is left of its quantum. Always ``tracks_wait``
    (but in the limits that are FCFS): it must know who waits.
    """

    name = "atlas-cp"
    rule = "max"

    def __init__(
        self,
        *,
        bounds: Sequence[float] | None = None,
        quanta: Sequence[float] | None = None,
        unit: str = "step",
        beta: float = DEFAULT_BETA,
        promote_reset: str = "call",
        promote_refill: bool = True,
        max_promotions: float = 1,
        table: ProcessTable | None = None,
    ) -> None:
        super().__init__(
            bounds=bounds, quanta=quanta, unit=unit, beta=beta, promote_reset=promote_reset,
            promote_refill=promote_refill, max_promotions=max_promotions, table=table,
        )  # fmt: skip
        self.tracks_wait = not self._flat
        self._places: dict[int, Place] = {}
        self._waiting: dict[int, dict[int, Place]] = {}
        self._unsorted: dict[int, None] = {}

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """As ``atlas``; the program's places may change at the next boundary."""
        slot = super().arrive(call, snap, now)
        row = self.table.start(call.program, now)
        self._places[call.seq] = Place(call, row.start_of(call.parents))
        self._wait(call)
        return slot

    def start(self, call: Call, now: float) -> None:
        """It gave up its place among the waiting."""
        super().start(call, now)
        self._unwait(call)

    def stop(self, call: Call, usage: Usage, now: float) -> None:
        """It waits again, in its slot, which may change at the next boundary."""
        super().stop(call, usage, now)
        self._places[call.seq].served = usage.served
        self._wait(call)

    def expire(self, call: Call, served: float, now: float) -> Slot:
        """As ``atlas``."""
        self._places[call.seq].given = served
        return super().expire(call, served, now)

    def next_due(self) -> float:
        """At once if a program's waiting calls may be out of order; else when one starves."""
        return 0.0 if self._unsorted else super().next_due()

    def due(self, now: float) -> list[tuple[Call, Slot]]:
        """Starving calls to the tail of Q1; then the programs that are out of order."""
        moves = {call.seq: (call, slot) for call, slot in super().due(now)}
        for seq, (call, _) in moves.items():
            self._places[seq].given = self._places[seq].served
            self._wait(call)
        for program in self._unsorted:
            moves.update(self._reorder(program))
        self._unsorted.clear()
        return list(moves.values())

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Note the call's path for its children, then leave and charge."""
        self._unwait(call)
        path = self._places.pop(call.seq).path
        self.table.extend(call.program, (call.thread, call.index), path + usage.served)
        super().finish(call, usage, now)

    def _wait(self, call: Call) -> None:
        group = self._waiting.setdefault(call.program, {})
        group[call.seq] = self._places[call.seq]
        if len(group) > 1 and not self._flat:
            self._unsorted[call.program] = None

    def _unwait(self, call: Call) -> None:
        group = self._waiting.get(call.program, {})
        group.pop(call.seq, None)
        if len(group) < 2:
            self._unsorted.pop(call.program, None)
        if not group:
            self._waiting.pop(call.program, None)

    def _reorder(self, program: int) -> dict[int, tuple[Call, Slot]]:
        """Longest path first, in the places the program's waiting calls have; those that move."""
        levels: dict[int, list[Place]] = {}
        for seq, place in self._waiting[program].items():
            levels.setdefault(self._slots[seq].level, []).append(place)
        moves = {}
        for places in levels.values():
            keys = sorted(self._slots[place.call.seq].key for place in places)
            places.sort(key=lambda place: (-place.path, place.call.seq))
            for place, key in zip(places, keys, strict=True):
                if self._slots[place.call.seq].key != key:
                    moves[place.call.seq] = (place.call, self._move(place, key))
        return moves

    def _move(self, place: Place, key: float) -> Slot:
        """The same queue, another place, the rest of the quantum (a host counts anew in a new slot)."""
        seq, old = place.call.seq, self._slots[place.call.seq]
        left = old.quantum - (place.served - place.given)
        place.given = place.served
        if not self.promote_refill:
            self._granted[seq] = place.served
        slot = self._slots[seq] = Slot(old.level, key, max(left, GRID))
        return slot


SCHEDULER = AtlasCp
