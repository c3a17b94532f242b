"""ThunderAgent as its published code does it (repository at 7ddc861), faults included.

For comparison only. The note ``docs/gates.md`` lists what differs from ``thunderagent``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from systems.gates.knobs import flag, number, one_of
from systems.gates.ticking import after
from systems.protocols import Pause, Resume
from vocabulary import BLOCK, INF, Call, EngineView, GateEvent, Usage, on_grid

BUFFER = 100
"""Tokens added for each program on a backend."""
FORCED_S = 1800.0
"""A request that waited so long is let in; a constant there, too."""
FIRST_RATIO, MOMENTUM = 5.0, 0.8
"""Characters per token, of all programs together, and how much of it a new sample leaves."""
DECAYS = ("none", "exponential")


@dataclass(slots=True, eq=False)
class _Program:
    id: int
    engine: int = -1  # -1: paused, or never let in
    origin: int = -1
    tokens: int = 0
    queued_tokens: int = 0
    steps: int = 0
    reasoning: bool = True
    acting_since: float = 0.0
    marked: bool = False
    waiting: bool = False  # for a resume, with or without a request
    held: set[int] = field(default_factory=set)
    held_since: float = 0.0


class ThunderAgentCode:
    """Per tick: resume what fits, then pause; see the module for why one would want it.

    ``dt`` (5 s), ``decay`` (none; exponential: 2^-seconds, at resuming only), ``release`` off: deaf to ends.
    ``chars_per_token`` (4, ours): the original estimates tokens from the length of the request's JSON, which
    a gate here does not see; it is taken to be so many characters per prompt token.

    Kept: marking a reasoning program does not lower the use, so a small overflow marks all of them; the size
    of the KV is what was known when the first call came; tokens are right only after a reply with usage, and
    only that ends a turn; calls are not counted; nobody who left is taken out of the queue; no ageing, no
    lease, ticks only, the longest hold fixed at 1 800 s; programs of a dead backend stay pinned to it.
    Not kept: programs without an id that share "default" (who a call belongs to is the host's business); the
    count of streamed tokens (no such hook). Other than there, a resume that lets nobody on is not reported.
    """

    name = "thunderagent-code"
    places = True
    counts = True

    def __init__(
        self, *, dt: float = 5.0, decay: str = "none", release: bool = True, chars_per_token: float = 4.0
    ) -> None:
        self.dt = number("dt", dt, above=True)
        self.decay = one_of("decay", decay, DECAYS)
        self.release = flag("release", release)
        self.chars_per_token = number("chars_per_token", chars_per_token, above=True)
        self.events: list[GateEvent] = []
        self._programs: dict[int, _Program] = {}
        self._queue: dict[int, _Program] = {}
        self._capacity: dict[int, float] = {}
        self._ratio, self._ratio_known = FIRST_RATIO, False
        self._usage: dict[int, int] = {}
        self._pauses: list[Pause] = []
        self._due = INF

    def reasoning(self) -> int:
        """Programs on a backend with a call in flight, by its books."""
        return sum(p.reasoning and p.engine >= 0 for p in self._programs.values())

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:
        """A program on a backend always passes; a new one if nobody waits and a backend has room."""
        self._start(engines)
        self._due = min(self._due, after(now, self.dt))
        program = self._programs.setdefault(call.program, _Program(call.program))
        program.steps += 1
        program.tokens = int(call.prompt_tokens * self.chars_per_token / self._ratio)
        program.reasoning = True
        if not program.waiting and program.engine < 0:
            program.engine = self._engine_for_new(program, engines)
            program.waiting = program.engine < 0
            if program.waiting:
                self._enqueue(program)
            else:
                self._note(program, now, "admit", "room")
        if program.waiting:
            self._hold(program, call, now)
        return not program.waiting

    def place(self, call: Call, engines: Sequence[EngineView], now: float) -> int | None:  # noqa: ARG002
        """Its backend, dead or alive."""
        program = self._programs.get(call.program)
        return None if program is None or program.engine < 0 else program.engine

    def count(self, call: Call, tokens: int | None, now: float) -> None:  # noqa: ARG002
        """The reply's usage, if it has one."""
        if tokens is not None and call.program in self._programs:
            self._usage[call.program] = tokens

    def finish(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """Only a reply with usage makes a program act; any of several calls does."""
        program, tokens = self._programs.get(call.program), self._usage.pop(call.program, None)
        if program is None or tokens is None:
            return
        program.reasoning, program.acting_since, program.tokens = False, now, tokens
        if call.prompt_tokens > 0:
            sample = self.chars_per_token
            mixed = MOMENTUM * self._ratio + (1 - MOMENTUM) * sample
            self._ratio, self._ratio_known = (mixed if self._ratio_known else sample), True
        if program.marked and program.engine >= 0:
            program.marked = False
            self._pause(program, now, "turn over")

    def abort(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """Nobody is told: the program reasons on, and a request in the queue stays there."""
        self._usage.pop(call.program, None)
        program = self._programs.get(call.program)
        if program is not None:
            program.held.discard(call.seq)

    def end(self, program: int, now: float) -> None:
        """The release signal."""
        if not self.release:
            return
        found = self._programs.pop(program, None)
        self._queue.pop(program, None)
        self._usage.pop(program, None)
        if found is not None:
            self._note(found, now, "release", "end")
        if not self._programs:
            self._due = INF

    def next_tick(self) -> float:
        """Every ``dt`` while there are programs; and where a request has waited for the longest hold."""
        since = min((p.held_since for p in self._queue.values() if p.held), default=INF)
        return min(self._due, INF if since == INF else on_grid(since + FORCED_S))

    def tick(self, engines: Sequence[EngineView], now: float) -> list[Resume | Pause]:
        """Resume, then pause; nothing between two ticks but what a turn's end had decided."""
        self._start(engines)
        resumed = self._forced(engines, now)
        if now >= self._due:
            resumed += self._resume(engines, now)
            for view in engines:
                self._pause_until_safe(view.id, now)
            self._due = after(now, self.dt) if self._programs else INF
        actions: list[Resume | Pause] = [*resumed, *self._pauses]
        self._pauses = []
        return actions

    # -- its books -------------------------------------------------------------------

    def _start(self, engines: Sequence[EngineView]) -> None:
        """The one time that the size of the KV is read."""
        if not self._capacity and engines:
            for view in engines:
                known = view.alive and view.kv_total > 0
                self._capacity[view.id] = view.kv_total * BLOCK if known else INF

    def _room(self, engine: int, now: float, decays: bool = False) -> float:
        """Tokens left: all programs on it at their size, marked ones, too."""
        used = sum(
            (int(p.tokens * 2.0 ** -(now - p.acting_since)) if decays and not p.reasoning else p.tokens)
            + BUFFER
            for p in self._programs.values()
            if p.engine == engine
        )
        return self._capacity.get(engine, INF) - used

    def _engine_for_new(self, program: _Program, engines: Sequence[EngineView]) -> int:
        if self._queue:
            return -1
        room = {view.id: self._room(view.id, 0.0) for view in engines if view.alive}
        used = {
            engine: sum(p.tokens for p in self._programs.values() if p.engine == engine) for engine in room
        }
        fits = [engine for engine in room if room[engine] >= program.tokens + BUFFER]
        return min(fits, key=lambda engine: (used[engine], engine), default=-1)

    def _enqueue(self, program: _Program) -> None:
        program.queued_tokens = program.tokens
        self._queue[program.id] = program

    def _hold(self, program: _Program, call: Call, now: float) -> None:
        if not program.held:
            program.held_since = now
            self._note(program, now, "hold", "queue")
        program.held.add(call.seq)

    # -- a tick ----------------------------------------------------------------------

    def _resume(self, engines: Sequence[EngineView], now: float) -> list[Resume]:
        """By phase and size what fits in all room together; of those the largest first, to most room."""
        room = {}
        for view in engines:
            left = self._room(view.id, now, self.decay != "none")
            if view.alive and BUFFER < left < INF:
                room[view.id] = left
        left, selected = sum(room.values()), []
        for program in sorted(self._queue.values(), key=_priority):
            if program.tokens + BUFFER <= left:
                left -= program.tokens + BUFFER
                selected.append(program)
        resumed = []
        for program in sorted(selected, key=lambda p: (-p.tokens, p.id)):
            engine = max(room, key=lambda e: (room[e], -e), default=-1)
            if engine < 0 or program.tokens + BUFFER > room[engine]:
                continue
            resumed += self._go_on(program, engine, now, "room")
            room[engine] -= program.tokens + BUFFER
            if room[engine] <= BUFFER:
                del room[engine]
        return resumed

    def _forced(self, engines: Sequence[EngineView], now: float) -> list[Resume]:
        """Who waited for the longest hold: back where it was, a new one where there are fewest programs."""
        resumed = []
        for program in [p for p in self._queue.values() if p.held]:
            if now < on_grid(program.held_since + FORCED_S) or not engines:
                continue
            count = {v.id: sum(p.engine == v.id for p in self._programs.values()) for v in engines if v.alive}
            fewest = min(count, key=lambda e: (count[e], e), default=engines[0].id)
            engine = program.origin if program.origin >= 0 else fewest
            resumed += self._go_on(program, engine, now, "longest hold", "force")
        return resumed

    def _go_on(self, program: _Program, engine: int, now: float, reason: str, what: str = "") -> list[Resume]:
        moved = program.origin not in (-1, engine)
        fresh = program.origin < 0
        del self._queue[program.id]
        program.engine, program.origin, program.waiting = engine, -1, False
        self._note(program, now, what or ("admit" if fresh else "move" if moved else "resume"), reason)
        held, program.held = program.held, set()
        return [Resume(program.id, engine)] if held else []

    def _pause_until_safe(self, engine: int, now: float) -> None:
        while self._room(engine, now) < 0:
            here = [p for p in self._programs.values() if p.engine == engine]
            acting = [p for p in here if not p.reasoning]
            if acting:
                self._pause(min(acting, key=_size), now, "over capacity")
                continue
            unmarked = [p for p in here if not p.marked]
            if not unmarked:
                return
            program = min(unmarked, key=_size)
            program.marked = True
            self._note(program, now, "mark", "over capacity")

    def _pause(self, program: _Program, now: float, reason: str) -> None:
        self._note(program, now, "pause", reason)
        self._pauses.append(Pause(program.id, program.engine))
        program.origin, program.engine, program.waiting = program.engine, -1, True
        self._enqueue(program)

    def _note(self, program: _Program, now: float, what: str, reason: str) -> None:
        self.events.append(GateEvent(now, program.id, program.engine, what, reason, program.tokens))


def _size(program: _Program) -> tuple[int, int]:
    return program.tokens, program.id


def _priority(program: _Program) -> tuple[int, int, int]:
    """Who has a request and has run before, who has run one step at most, who acts; small ones first."""
    group = 1 if program.steps == 1 else 0 if program.reasoning else 2
    return group, program.queued_tokens, program.id


GATE = ThunderAgentCode
