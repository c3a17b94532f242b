"""Gates that keep the programs of an engine within its KV: the machinery that their rules share.

A program that was let in is never asked again until it is paused. Every ``dt`` seconds each live engine
whose programs weigh more than it holds pauses some: those that act at once, those that reason when their
turn ends, which counts as freed at once. Then those that wait go on while there is room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from systems.gates.books import LEAVING, Books
from systems.gates.ledger import ACTIVE, MARKED, NEW
from systems.protocols import Pause, Resume
from vocabulary import Call, EngineView, Usage

LEADING = 16
"""So many segments of a prompt are looked at: system prompt, tools, task."""


class CapacityGate(Books):
    """The common part; a rule of its own says who pauses (``relief``) and who goes on first (``rank``).

    ``events`` is for the host, which empties it. Engines are as they stand at each request and tick; the last
    KV size heard of one counts while it tells none, and one that never told is taken to hold anything.
    """

    places = True
    counts = True

    def reasoning(self) -> int:
        """Programs with a call in flight, by the gate's books."""
        return self._ledger.reasoning()

    def booked(self) -> dict[int, int]:
        """Tokens by engine of the programs that run there, those that leave with their turn included."""
        engines = {*self._ledger.load, *self._ledger.leaving}
        return {e: self._load(e) + self._ledger.leaving.get(e, 0) for e in sorted(engines)}

    # -- the protocol ----------------------------------------------------------------

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:
        """True if its program runs, or nobody waits and there is room for it."""
        self._look(engines)
        self._wake(now)
        program = self._ledger.known(call, now)
        self._idle.pop(program.id, None)
        if self._shared is not None:
            program.prompt = call.prompt[:LEADING]
        tokens = program.estimate(call.prompt_tokens, self._rules.reserve)
        if program.state == ACTIVE and program.engine not in self._live:
            self._quit(program, now, "engine gone")
        if program.state == ACTIVE:
            self._ledger.open(program, call.seq, tokens)
            self._weigh(program, now)
            return True
        self._ledger.hold(program, call.seq, tokens)
        engine = (
            None if self._line or program.state == MARKED else self._engine_for(program, self._clear(now))
        )
        if engine is None:
            self._wait(program, now)
            return False
        self._admit(program, engine, now, "room")
        return True

    def place(self, call: Call, engines: Sequence[EngineView], now: float) -> int | None:
        """Its program's engine; another one if that is dead."""
        program = self._ledger.programs.get(call.program)
        if program is None or program.engine < 0:
            return None
        self._look(engines)
        if program.engine not in self._live and self._live:
            engine = self._roomiest()
            if program.held:  # they go on with it: the host hears that at the next tick
                self._pending.append(Resume(program.id, engine))
            self._quit(program, now, "engine gone")
            self._admit(program, engine, now, "engine gone")
        return program.engine if program.engine in self._live else None

    def count(self, call: Call, tokens: int | None, now: float, prompt: int | None = None) -> None:  # noqa: ARG002
        """How long the call's context is; None: what is to be expected of it stands."""
        program = self._ledger.programs.get(call.program)
        if program is not None and call.seq in program.open and tokens is not None and tokens > 0:
            program.learn(call.prompt_tokens, prompt, tokens)
            program.tokens, program.counted = tokens, call.seq

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """The turn is over."""
        program = self._ledger.programs.get(call.program)
        if program is None or self._ledger.close(program, call.seq) is None:
            return
        if program.counted != call.seq:
            program.tokens = program.estimate(call.prompt_tokens)
        program.served += usage.served
        self._closed(program, now)

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """The turn is over, however it ended. A call at the door was never there, but its program's wait goes
        on if it asks again within its lease: clients that lose patience grow as old as others."""
        program = self._ledger.programs.get(call.program)
        if program is None or not self._ledger.unhold(program, call.seq):
            self.finish(call, usage, now)
            return
        self._freed = True
        if program.held:
            self._wait(program, now)
        else:
            self._line.take(program)
            if program.state == NEW and self._rules.lease_s <= 0:
                self._forget(program, now, "release", "gave up")
            elif not program.open:
                self._rest(program, now)

    def end(self, program: int, now: float) -> None:
        """What was booked for it is free, if the gate obeys."""
        found = self._ledger.programs.get(program)
        if found is not None and self._rules.release:
            self._forget(found, now, "release", "end")

    def next_tick(self) -> float:
        """The next multiple of ``dt`` while something may change; earlier where a hold reaches its limit."""
        return min(self._due, self._force_at())

    def tick(self, engines: Sequence[EngineView], now: float) -> list[Resume | Pause]:
        """Pauses that came due; at its time the whole check."""
        self._look(engines)
        done: list[Resume | Pause] = []
        if now >= self._due:
            done += self._check(now)
        elif self._rules.event_driven and self._freed:
            done += self._restore(now)
        self._freed = False
        while now >= self._force_at():
            done.append(self._force(now))
        done[:0] = self._pending
        self._pending = []
        return done

    # -- the check -------------------------------------------------------------------

    def _check(self, now: float) -> list[Resume | Pause]:
        self._expire(now)
        self._leave_dead(now)
        self._before_pausing(now)
        for program in self.overdue(now):
            self._pause(program, now, "overdue")
        for engine, capacity in sorted(self._live.items()):
            excess = self._load(engine) - self._rules.pause_to * capacity
            if self._load(engine) > self._rules.pause_at * capacity and excess > 0:
                self._relieve(engine, math.ceil(excess), now)
        self._before_resuming(now)
        done: list[Resume | Pause] = [*self._unmark(now), *self._restore(now)]
        self._due = self._next(now)
        return done

    def _before_pausing(self, now: float) -> None:
        """Weights follow calls; what programs share is settled here."""
        if self._shared is not None:
            self._reweigh(now)

    def _before_resuming(self, now: float) -> None:
        """Weights stand as they are."""

    def _relieve(self, engine: int, need: int, now: float) -> None:
        """Who leaves; never all, for who is alone would come straight back."""
        running = [p for p in self._ledger.programs.values() if p.state == ACTIVE and p.engine == engine]
        leaving = self.relief(running, need, now)
        for program in leaving[: len(running) - 1]:
            if program.acting:
                self._pause(program, now, "over capacity")
            else:
                self._ledger.mark(program)
                self._marked[program.id] = now
                self._note(program, now, "mark", "over capacity")

    def _unmark(self, now: float) -> list[Resume]:
        """Marked programs that fit again stay: nothing is cheaper than who is there."""
        resumed = []
        longest = self._line.longest()
        if longest is not None and self._aged(longest, now):
            return []
        programs = [self._ledger.programs[i] for i, since in self._marked.items() if since < now]
        for program in sorted(programs, key=lambda p: (*self.rank(p), p.id)):
            room = self._rules.resume_to * self._live.get(program.engine, 0.0) - self._load(program.engine)
            if program.booked + program.held_tokens > room:
                continue
            self._stay(program, now, "unmark", "room")
            if program.held:
                self._let_in(program, now)
                resumed.append(Resume(program.id, program.engine))
        return resumed

    def _restore(self, now: float) -> list[Resume]:
        resumed, shut = self._oldest(now)
        for group in self._line.groups():
            if group[0] == LEAVING:
                continue
            while (program := self._line.first(group)) is not None:
                engine = self._engine_for(program, shut)
                if engine is None:
                    break
                self._admit(program, engine, now, "room")
                resumed.append(Resume(program.id, engine))
        return resumed

    def _oldest(self, now: float) -> tuple[list[Resume], int]:
        """Those that have waited long go first; the engine that is kept clear for the first that cannot."""
        resumed: list[Resume] = []
        clear = self._clear(now)
        if clear >= 0:
            return resumed, clear
        while (program := self._line.longest()) is not None and self._aged(program, now):
            if program.state == MARKED:
                break
            engine = self._engine_for(program)
            if engine is None:
                self._first = program
                return resumed, self._aim(program)
            self._admit(program, engine, now, "aged")
            resumed.append(Resume(program.id, engine))
        return resumed, -1
