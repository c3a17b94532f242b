"""What ThunderAgent's published code and NVIDIA's port of it have in common, as both do it.

Kept apart from the gates that are meant to be right: a program has a flag for reasoning, not a count; marking
a program lowers nothing; who goes on is chosen by the sum of all rooms, and placed one by one after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from systems.gates.ticking import after
from systems.protocols import Pause, Resume
from vocabulary import INF, Call, EngineView, GateEvent, on_grid

FORCED_S = 1800.0
"""A request that waited so long is let in."""


@dataclass(slots=True, eq=False)
class Known:
    """A program. ``engine``: its backend; -1: none. ``waiting``: for a resume, with or without a request.

    ``queued_tokens``: its size when it came into the queue; ``steps``: requests so far.
    """

    id: int
    engine: int = -1
    origin: int = -1
    tokens: int = 0
    queued_tokens: int = 0
    steps: int = 0
    reasoning: bool = True
    acting_since: float = 0.0
    marked: bool = False
    waiting: bool = False
    held: dict[int, tuple[int, bool]] = field(default_factory=dict)
    held_since: float = 0.0


class Published:
    """The books and the tick; a gate says how big engines are and when a turn has ended."""

    name = ""
    places = True
    counts = True
    pause_at = pause_to = resume_to = 1.0
    """Shares of an engine's KV: above the first pause down to the second; resume up to the third."""
    buffer = 100
    """Tokens added for each program on a backend."""

    def __init__(self, dt: float, release: bool, longest_s: float = FORCED_S) -> None:
        self.dt, self.release = dt, release
        self.events: list[GateEvent] = []
        self._longest_s = longest_s
        self._programs: dict[int, Known] = {}
        self._queue: dict[int, Known] = {}
        self._pauses: list[Pause] = []
        self._due = INF

    # -- what the gates differ in ----------------------------------------------------

    def _look(self, engines: Sequence[EngineView]) -> None:
        """Read the engines' sizes, or do not."""
        raise NotImplementedError

    def _size(self, engine: int) -> float:
        """Tokens an engine holds; INF: unknown."""
        raise NotImplementedError

    def _slots(self, engine: int, share: float) -> float:  # noqa: ARG002
        """Requests that may still come to it."""
        return INF

    def _expire(self, now: float) -> None:
        """Forget who was not heard of, or nobody."""

    def _crowded(self, engine: int, share: float) -> bool:  # noqa: ARG002
        """More requests are there than a share of those it takes."""
        return False

    def _resuming_weight(self, program: Known, now: float) -> int:  # noqa: ARG002
        """What a program weighs where it is asked who may resume."""
        return program.tokens

    def _forced_to(self, program: Known, engines: Sequence[EngineView], now: float) -> int:
        """The backend of a program that is let in against the rule."""
        raise NotImplementedError

    # -- the protocol's common part --------------------------------------------------

    def reasoning(self) -> int:
        """Programs on a backend with a call in flight, by these books."""
        return sum(p.reasoning and not p.waiting for p in self._programs.values())

    def place(self, call: Call, engines: Sequence[EngineView], now: float) -> int | None:  # noqa: ARG002
        """Its backend; None: it has none."""
        program = self._programs.get(call.program)
        return None if program is None or program.engine < 0 else program.engine

    def end(self, program: int, now: float) -> None:
        """The release signal, if the gate hears it."""
        found = self._programs.get(program)
        if self.release and found is not None:
            self._drop(found, now, "release", "end")

    def next_tick(self) -> float:
        """Every ``dt`` while there are programs; and where a request has waited for the longest hold."""
        since = min((p.held_since for p in self._queue.values() if p.held), default=INF)
        return min(self._due, INF if since == INF else on_grid(since + self._longest_s))

    def tick(self, engines: Sequence[EngineView], now: float) -> list[Resume | Pause]:
        """Resume, then pause; nothing between two ticks but what a turn's end had decided."""
        self._look(engines)
        resumed = self._forced(engines, now)
        if now >= self._due:
            self._expire(now)
            resumed += self._resume(engines, now)
            for view in engines:
                self._pause_until_safe(view.id, now)
            self._due = after(now, self.dt) if self._programs else INF
        actions: list[Resume | Pause] = [*resumed, *self._pauses]
        self._pauses = []
        return actions

    # -- a tick ----------------------------------------------------------------------

    def _resume(self, engines: Sequence[EngineView], now: float) -> list[Resume]:
        """By phase and size what fits in all room together; of those the largest first, to most room."""
        room = {}
        for view in engines:
            left = self.resume_to * self._size(view.id) - self._resuming_load(view.id, now)
            if view.alive and self.buffer < left < INF:
                room[view.id] = left
        slots = {engine: self._slots(engine, self.resume_to) for engine in room}
        resumed = []
        for program in self._selected(sum(room.values()), sum(slots.values())):
            need = program.tokens + self.buffer
            fits = [e for e in room if need <= room[e] and (slots[e] >= 1 or not program.reasoning)]
            if not fits:
                continue
            engine = max(fits, key=lambda e: (room[e], -e))
            resumed += self._go_on(program, engine, now, "room")
            slots[engine] -= program.reasoning
            room[engine] -= need
            if room[engine] <= self.buffer:
                del room[engine]
        return resumed

    def _selected(self, left: float, slots: float) -> list[Known]:
        """Who fits into the sum of rooms, by priority; the largest first."""
        selected = []
        for program in sorted(self._queue.values(), key=_priority):
            if program.tokens + self.buffer > left or (program.reasoning and slots < 1):
                continue
            left -= program.tokens + self.buffer
            slots -= program.reasoning
            selected.append(program)
        return sorted(selected, key=lambda p: (-p.tokens, p.id))

    def _forced(self, engines: Sequence[EngineView], now: float) -> list[Resume]:
        resumed = []
        for program in [p for p in self._queue.values() if p.held]:
            if engines and now >= on_grid(program.held_since + self._longest_s):
                engine = self._forced_to(program, engines, now)
                resumed += self._go_on(program, engine, now, "longest hold", "force")
        return resumed

    def _pause_until_safe(self, engine: int, now: float) -> None:
        """Acting programs, smallest first, while it is too full; then every reasoning one is marked."""
        size = self._size(engine)
        if self._load(engine) <= self.pause_at * size and not self._crowded(engine, self.pause_at):
            return
        here = sorted(self._on(engine), key=lambda p: (p.tokens, p.id))
        for program in [p for p in here if not p.reasoning]:
            if self._load(engine) <= self.pause_to * size:
                break
            self._pause(program, now, "over capacity")
        if self._load(engine) > self.pause_to * size or self._crowded(engine, self.pause_to):
            self._mark(here, now)

    def _mark(self, programs: Iterable[Known], now: float) -> None:
        for program in programs:
            if program.reasoning and not program.marked:
                program.marked = True
                self._note(program, now, "mark", "over capacity")

    # -- books -----------------------------------------------------------------------

    def _on(self, engine: int) -> list[Known]:
        return [p for p in self._programs.values() if p.engine == engine]

    def _load(self, engine: int) -> int:
        """All programs there at their size, marked ones, too."""
        return sum(p.tokens + self.buffer for p in self._on(engine))

    def _resuming_load(self, engine: int, now: float) -> int:
        return sum(self._resuming_weight(p, now) + self.buffer for p in self._on(engine))

    def _asked(self, call: Call, tokens: int, now: float) -> Known:
        """A request: its program reasons, and is taken to be as long as the request."""
        self._due = min(self._due, after(now, self.dt))
        program = self._programs.setdefault(call.program, Known(call.program))
        program.steps += 1
        program.tokens, program.reasoning = tokens, True
        return program

    def _hold(self, program: Known, call: Call, now: float, before: tuple[int, bool] = (0, True)) -> None:
        """The request waits; ``before``: size and phase of its program without it."""
        if not program.held:
            program.held_since = now
            self._note(program, now, "hold", "queue")
        program.held[call.seq] = before

    def _queued(self, program: Known) -> None:
        program.waiting, program.queued_tokens = True, program.tokens
        self._queue[program.id] = program

    def _turn_over(self, program: Known, tokens: int, now: float) -> None:
        """It acts now, whatever else of it is in flight; the mark is paid."""
        program.reasoning, program.acting_since, program.tokens = False, now, tokens
        if program.marked and program.engine >= 0:
            program.marked = False
            self._pause(program, now, "turn over")

    def _go_on(self, program: Known, engine: int, now: float, reason: str, what: str = "") -> list[Resume]:
        moved, fresh = program.origin not in (-1, engine), program.origin < 0
        del self._queue[program.id]
        program.engine, program.origin, program.waiting = engine, -1, False
        self._note(program, now, what or ("admit" if fresh else "move" if moved else "resume"), reason)
        held, program.held = program.held, {}
        return [Resume(program.id, engine if engine >= 0 else None)] if held else []

    def _pause(self, program: Known, now: float, reason: str) -> None:
        self._note(program, now, "pause", reason)
        self._pauses.append(Pause(program.id, program.engine))
        program.origin, program.engine = program.engine, -1
        self._queued(program)

    def _drop(self, program: Known, now: float, what: str, reason: str) -> None:
        del self._programs[program.id]
        self._queue.pop(program.id, None)
        self._note(program, now, what, reason)
        if not self._programs:
            self._due = INF

    def _note(self, program: Known, now: float, what: str, reason: str) -> None:
        self.events.append(GateEvent(now, program.id, program.engine, what, reason, program.tokens))


def _priority(program: Known) -> tuple[int, int, int]:
    """Who has a request and has run before, who has run one step at most, who acts; small ones first."""
    group = 1 if program.steps == 1 else 0 if program.reasoning else 2
    return group, program.queued_tokens, program.id
