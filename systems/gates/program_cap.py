"""At most so many programs at a time: admission control by program, not by call.

A program that was let in keeps its place, between its calls, too, until it is over: its KV is worth
something only while it may come back. Who comes when all places are taken waits in line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from systems.protocols import Resume
from vocabulary import INF, Call, EngineView, Usage


class ProgramCap:
    """First come, first served, by the first call of each program.

    ``programs``: so many are inside at a time, at least 1. Default 64 (ours).

    A program whose held calls all left without a reply keeps its rank in the line, but is passed over
    until it calls again: a place is given only to who uses it. ``end`` is what takes a place or a rank away.
    """

    name = "program-cap"

    def __init__(self, *, programs: int = 64) -> None:
        if isinstance(programs, bool) or not isinstance(programs, int) or programs < 1:
            raise ValueError(f"programs must be a whole number of at least 1, got {programs!r}")
        self.programs = programs
        self._inside: set[int] = set()
        self._line: dict[int, int] = {}  # held calls by program, in order of arrival

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:  # noqa: ARG002
        """True if the program is inside, or gets a place now that nobody before it in line wants."""
        program = call.program
        if program in self._inside:
            return True
        self._line[program] = self._line.get(program, 0) + 1
        if self._line[program] > 1 or next(self._wanting(), None) != program or not self._free():
            return False
        self._let_in(program)
        return True

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Nothing changes: the program keeps its place."""

    def abort(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """A held call that left is no longer waited for; the program keeps its place or rank."""
        if self._line.get(call.program, 0) > 0:
            self._line[call.program] -= 1

    def end(self, program: int, now: float) -> None:  # noqa: ARG002
        """Its place is free."""
        self._inside.discard(program)
        self._line.pop(program, None)

    def next_tick(self) -> float:
        """INF: places come free by ends only."""
        return INF

    def tick(self, engines: Sequence[EngineView], now: float) -> list[Resume]:  # noqa: ARG002
        """Free places go to the programs with held calls, in order of arrival."""
        chosen = list(islice(self._wanting(), self._free()))
        for program in chosen:
            self._let_in(program)
        return [Resume(program) for program in chosen]

    def _free(self) -> int:
        return self.programs - len(self._inside)

    def _wanting(self) -> Iterator[int]:
        return (program for program, held in self._line.items() if held)

    def _let_in(self, program: int) -> None:
        del self._line[program]
        self._inside.add(program)


GATE = ProgramCap
