"""The state of a gate by capacity, and its single moves: in, out, pause, wait, and the room there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from systems.gates.ledger import ACTIVE, MARKED, NEW, Ledger, Program
from systems.gates.line import Group, Line, Rank
from systems.gates.ticking import after
from systems.protocols import Pause, Resume
from systems.shared_prefix import SharedPrefix
from vocabulary import BLOCK, INF, EngineView, GateEvent, on_grid

RETURNING, FRESH, LEAVING = 0, 1, 2
"""Groups of the line: programs that have run before, those that have not, those whose turn must end first."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What gates by capacity differ in; shares are of an engine's KV, 0 switches a duration off.

    Above ``pause_at`` programs pause down to ``pause_to``; others go on up to ``resume_to``.
    ``buffer``: tokens each program is given beyond its context; ``reserve``: what each call in flight
    is given for its reply.
    """

    dt: float = 5.0
    pause_at: float = 1.0
    pause_to: float = 1.0
    resume_to: float = 1.0
    buffer: int = 100
    reserve: int = 0
    ageing_s: float = 300.0
    grace_s: float = 10.0
    max_hold_s: float = 1800.0
    lease_s: float = 600.0
    release: bool = True
    event_driven: bool = False
    shared_prefix: bool = False
    frees_kv: bool = False
    origin_first: bool = True
    global_queue: bool = True
    phase_priority: bool = True


class Books:
    """Programs, the line, and what engines have room for. Every move leaves an event."""

    name = ""

    def __init__(self, rules: Rules) -> None:
        self.events: list[GateEvent] = []
        self.reads_prompt = rules.shared_prefix
        self._rules = rules
        self._ledger = Ledger()
        self._line = Line()
        self._shared = SharedPrefix[int]() if rules.shared_prefix else None
        self._idle: dict[int, Program] = {}  # without any call, by when they were heard of last
        self._marked: dict[int, float] = {}  # since when
        self._first: Program | None = None  # who an engine is, or was last, kept clear for
        self._pending: list[Resume | Pause] = []  # for the next tick
        self._told: dict[int, int] = {}
        self._live: dict[int, float] = {}  # capacity in tokens
        self._due = INF
        self._freed = False

    # -- what a rule decides ---------------------------------------------------------

    def relief(self, programs: list[Program], need: int, now: float) -> list[Program]:
        """Who of an engine's running programs pauses to free ``need`` tokens."""
        raise NotImplementedError

    def rank(self, program: Program) -> Rank:
        """Who of those that wait goes on first, within a group."""
        raise NotImplementedError

    def share(self, acting_s: float) -> float:  # noqa: ARG002
        """What part of its context a program weighs that has acted for so long, from 1 down to 0."""
        return 1.0

    def overdue(self, now: float) -> list[Program]:  # noqa: ARG002
        """Acting programs that pause whether or not there is room."""
        return []

    # -- moves -----------------------------------------------------------------------

    def _note(self, program: Program, now: float, what: str, reason: str) -> None:
        self.events.append(GateEvent(now, program.id, program.engine, what, reason, program.need))

    def _admit(self, program: Program, engine: int, now: float, reason: str, what: str = "") -> None:
        """It runs on ``engine``, and its calls at the door go on."""
        if not what:
            moved = program.engine not in (-1, engine)
            what = "admit" if program.state == NEW else "move" if moved else "resume"
        self._line.take(program)
        self._ledger.enter(program, engine, 0)
        if self._shared is not None:
            self._join(program, engine, now)
        self._note(program, now, what, reason)
        self._ledger.let_in(program)
        self._weigh(program, now)

    def _let_in(self, program: Program, now: float) -> None:
        """It runs already: its calls at the door go on."""
        self._line.take(program)
        self._ledger.let_in(program)
        self._weigh(program, now)

    def _pause(self, program: Program, now: float, reason: str) -> None:
        """Its next calls wait; nothing of it is in flight."""
        self._pending.append(Pause(program.id, program.engine, self._rules.frees_kv))
        self._quit(program, now, reason)
        if program.held:
            self._wait(program, now)

    def _quit(self, program: Program, now: float, reason: str) -> None:
        """It runs on no engine."""
        self._marked.pop(program.id, None)
        self._note(program, now, "pause", reason)
        self._leave(program, now)

    def _stay(self, program: Program, now: float, what: str, reason: str) -> None:
        """A marked program runs on."""
        del self._marked[program.id]
        self._ledger.unmark(program)
        self._note(program, now, what, reason)

    def _wait(self, program: Program, now: float) -> None:
        """It stands in the line, at the place its state and rank give it; one that left it waits on."""
        if program not in self._line:
            program.waits = min(program.waits, now)
            self._note(program, now, "hold", "no room" if not self._line else "line")
        self._line.put(program, self._group(program), self.rank(program))

    def _rest(self, program: Program, now: float) -> None:
        """Nothing of it is here: its lease runs."""
        program.heard = now
        self._idle[program.id] = program

    def _forget(self, program: Program, now: float, what: str, reason: str) -> None:
        self._line.take(program)
        self._idle.pop(program.id, None)
        self._marked.pop(program.id, None)
        self._note(program, now, what, reason)
        self._leave(program, now)
        self._ledger.forget(program)
        self._freed = True

    def _leave(self, program: Program, now: float) -> None:
        if self._shared is not None:
            self._shares(self._shared.part(program.id), now)
            program.lead = 0
        self._ledger.leave(program)

    def _join(self, program: Program, engine: int, now: float) -> None:
        assert self._shared is not None
        self._shares(self._shared.join(program.id, program.prompt, engine), now)
        program.lead = self._shared.left_out(program.id)

    def _shares(self, names: set[int], now: float) -> None:
        """What these leave out of their weight has changed."""
        for other in (self._ledger.programs[name] for name in sorted(names)):
            other.lead = self._shared.left_out(other.id) if self._shared is not None else 0
            self._weigh(other, now)

    def _closed(self, program: Program, now: float) -> None:
        """A call of its has ended: what it weighs now, and whether that was its turn."""
        program.heard = now
        self._freed = True
        self._wake(now)
        if program.open:
            self._weigh(program, now)
            return
        program.since = now
        if program.state == MARKED:
            self._pause(program, now, "turn over")
        self._weigh(program, now)
        if not program.held:
            self._rest(program, now)

    # -- weights and room ------------------------------------------------------------

    def _weigh(self, program: Program, now: float, decayed: bool = True) -> None:
        tokens = max(0, program.size - program.lead) + self._rules.buffer
        if decayed and program.acting:
            tokens = math.ceil(tokens * self.share(now - program.since))
        self._ledger.book(program, tokens)

    def _reweigh(self, now: float, decayed: bool = True) -> None:
        for program in self._ledger.programs.values():
            if program.state in (ACTIVE, MARKED):
                if self._shared is not None:
                    self._join(program, program.engine, now)
                self._weigh(program, now, decayed)

    def _look(self, engines: Sequence[EngineView]) -> None:
        live: dict[int, float] = {}
        for view in engines:
            if view.kv_total > 0:
                self._told[view.id] = view.kv_total * BLOCK
            if view.alive:
                live[view.id] = self._told.get(view.id, INF)
        self._live = live

    def _load(self, engine: int) -> int:
        once = 0 if self._shared is None else self._shared.once.get(engine, 0)
        return self._ledger.load.get(engine, 0) + once

    def _room(self, engine: int) -> float:
        """Tokens that may still come: who leaves is there until its turn ends."""
        taken = self._load(engine) + self._ledger.leaving.get(engine, 0)
        return self._rules.resume_to * self._live[engine] - taken

    def _fits(self, program: Program, engine: int) -> bool:
        """There is room; on an engine of its own every program fits."""
        if engine not in self._ledger.inside:
            return True
        found = 0 if self._shared is None else self._shared.lead(program.prompt, engine)
        return max(0, program.need - found) + self._rules.buffer <= self._room(engine)

    def _engine_for(self, program: Program, shut: int = -1) -> int | None:
        """Its origin, if that is preferred or all there is; else where there is most room; None: nowhere."""
        origin = program.engine if program.engine in self._live else -1
        if origin >= 0 and (self._rules.origin_first or not self._rules.global_queue):
            if origin != shut and self._fits(program, origin):
                return origin
            if not self._rules.global_queue:
                return None
        fitting = [engine for engine in self._live if engine != shut and self._fits(program, engine)]
        return self._roomiest(fitting) if fitting else None

    def _roomiest(self, engines: Sequence[int] = ()) -> int:
        """Most room, then least load, then the lowest number."""
        return max(engines or self._live, key=lambda e: (self._room(e), -self._load(e), -e))

    def _aim(self, program: Program) -> int:
        """The engine that is kept clear for it."""
        if not self._rules.global_queue and program.engine in self._live:
            return program.engine
        return self._roomiest() if self._live else -1

    def _group(self, program: Program) -> Group:
        if program.state == MARKED:
            return LEAVING, -1
        fresh = self._rules.phase_priority and program.engine < 0
        bound = not self._rules.global_queue and program.engine in self._live
        return FRESH if fresh else RETURNING, program.engine if bound else -1

    # -- time ------------------------------------------------------------------------

    def _aged(self, program: Program, now: float) -> bool:
        return self._rules.ageing_s > 0 and now >= on_grid(program.waits + self._rules.ageing_s)

    def _clear(self, now: float) -> int:
        """The engine that is kept clear for who gave up there a moment ago; -1: none."""
        first, longest = self._first, self._line.longest()
        if first is None or self._idle.get(first.id) is not first or first.waits == INF:
            return -1
        if now >= on_grid(first.heard + self._rules.grace_s):
            return -1
        return -1 if longest is not None and longest.waits < first.waits else self._aim(first)

    def _force_at(self) -> float:
        """When who has waited longest is let in against the rule."""
        longest = self._line.longest() if self._rules.max_hold_s > 0 and self._live else None
        return INF if longest is None else on_grid(longest.waits + self._rules.max_hold_s)

    def _force(self, now: float) -> Resume:
        """Who has waited longest goes on, room or not."""
        program = self._line.longest()
        assert program is not None
        if program.state == MARKED:
            self._stay(program, now, "force", "longest hold")
            self._let_in(program, now)
        else:
            bound = not self._rules.global_queue and program.engine in self._live
            engine = program.engine if bound else self._roomiest()
            self._admit(program, engine, now, "longest hold", "force")
        return Resume(program.id, program.engine)

    def _expire(self, now: float) -> None:
        """Who was not heard of for so long is not waited for."""
        while self._rules.lease_s > 0 and self._idle:
            program = next(iter(self._idle.values()))
            if now < on_grid(program.heard + self._rules.lease_s):
                return
            self._forget(program, now, "expire", "lease")

    def _leave_dead(self, now: float) -> None:
        """Programs that act and whose engine is gone have nothing left there."""
        if all(engine in self._live for engine in self._ledger.inside):
            return
        for program in self._ledger.programs.values():
            lost = program.state == ACTIVE and program.acting and program.engine not in self._live
            if lost:
                self._quit(program, now, "engine gone")

    def _wake(self, now: float) -> None:
        self._due = min(self._due, after(now, self._rules.dt))

    def _next(self, now: float) -> float:
        """With nobody in flight and nobody waiting only leases can still end."""
        if self._ledger.in_flight or self._line:
            return after(now, self._rules.dt)
        if not self._idle or self._rules.lease_s <= 0:
            return INF
        return on_grid(next(iter(self._idle.values())).heard + self._rules.lease_s)
