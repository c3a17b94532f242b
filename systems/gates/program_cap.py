"""At most so many programs at a time: admission control by program, not by call.

A program that was let in keeps its place, between its calls, too, until it is over: its KV is worth
something only while it may come back. Who comes when all places are taken waits in line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from systems.knobs import finite, flag, whole
from systems.protocols import Resume
from vocabulary import INF, Call, EngineView, GateEvent, Usage, on_grid


class ProgramCap:
    """First come, first served, by the first call of each program.

    ``programs``: so many are inside at a time, at least 1. Default 64 (ours). ``release`` off: ends of
    programs are not heard of, and ``lease_s`` must take places back: who is inside without a call for so
    long (s) loses the place, and who has a rank in line without one loses that; 0, the default: never.

    A program whose held calls all left without a reply keeps its rank in the line, but is passed over
    until it calls again: a place is given only to who uses it. ``end`` is what takes a place or a rank away.
    """

    name = "program-cap"

    def __init__(self, *, programs: int = 64, release: bool = True, lease_s: float = 0.0) -> None:
        self.programs = whole("programs", programs, least=1)
        self.release = flag("release", release)
        self.lease_s = finite("lease_s", lease_s)
        if not self.release and self.lease_s == 0:
            raise ValueError("release off needs a lease_s above 0: nothing else would take a place back")
        self.events: list[GateEvent] = []
        self._inside: dict[int, int] = {}  # calls in flight by program
        self._line: dict[int, int] = {}  # held calls by program, in order of arrival
        self._idle: dict[int, float] = {}  # without any call since (s), in that order

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:  # noqa: ARG002
        """True if the program is inside, or gets a place now that nobody before it in line wants."""
        program = call.program
        self._idle.pop(program, None)
        if program in self._inside:
            self._inside[program] += 1
            return True
        self._line[program] = self._line.get(program, 0) + 1
        if self._line[program] == 1 and next(self._wanting(), None) == program and self._free():
            self._let_in(program, now)
            return True
        if self._line[program] == 1:
            self._note(program, now, "hold", "places taken")
        return False

    def finish(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """The program keeps its place; without another call its lease begins."""
        if self._inside.get(call.program, 0) > 0:
            self._inside[call.program] -= 1
            if not self._inside[call.program]:
                self._idle[call.program] = now

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """A held call that left is no longer waited for; the program keeps its place or rank."""
        held = self._line.get(call.program, 0)
        if held == 0:
            self.finish(call, usage, now)
            return
        self._line[call.program] = held - 1
        if held == 1:
            self._idle[call.program] = now

    def end(self, program: int, now: float) -> None:
        """Its place is free, if the gate obeys."""
        if self.release and (program in self._inside or program in self._line):
            self._forget(program, now, "release", "end")

    def next_tick(self) -> float:
        """When the next lease ends."""
        if not self._idle or not self.lease_s:
            return INF
        return on_grid(next(iter(self._idle.values())) + self.lease_s)

    def tick(self, engines: Sequence[EngineView], now: float) -> list[Resume]:  # noqa: ARG002
        """Free places go to the programs with held calls, in order of arrival."""
        while now >= self.next_tick():
            self._forget(next(iter(self._idle)), now, "expire", "lease")
        chosen = list(islice(self._wanting(), self._free()))
        for program in chosen:
            self._let_in(program, now)
        return [Resume(program) for program in chosen]

    def _free(self) -> int:
        return self.programs - len(self._inside)

    def _wanting(self) -> Iterator[int]:
        return (program for program, held in self._line.items() if held)

    def _let_in(self, program: int, now: float) -> None:
        self._inside[program] = self._line.pop(program)
        self._note(program, now, "admit", "a place")

    def _forget(self, program: int, now: float, what: str, reason: str) -> None:
        for books in (self._inside, self._line, self._idle):
            books.pop(program, None)
        self._note(program, now, what, reason)

    def _note(self, program: int, now: float, what: str, reason: str) -> None:
        self.events.append(GateEvent(now, program, -1, what, reason, 0))


GATE = ProgramCap
