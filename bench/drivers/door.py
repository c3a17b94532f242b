"""The door of a deployment on virtual time: what a gate holds, and for how long.

The gateway's door (systems/gateway/door.py) does the same on a real clock: the gate is asked for each call,
and ``tick`` after each finish, abort and end, and at ``next_tick``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.drivers.policy_events import gate_row
from systems.protocols import Engine, Gate, Pause, Resume
from vocabulary import GRID, INF, Call, Decision, EngineView, Finished, GateEvent, Usage

MOST_IDLE_TICKS = 100_000
"""So many in a row with programs at the door, nothing in the engines and nothing done: the gate is stuck."""

Held = tuple[Any, Any, float]
"""(task, effect, since when)."""


class Stuck(RuntimeError):
    """A gate holds calls that nothing will ever let go."""


class Door:
    """Calls that ``gate`` holds, by program, first come first served.

    ``at(time, act)`` schedules; ``send(task, effect, engine)`` lets a call go on, to an engine or, with
    None, to the router's; ``let_in(program)`` is told of programs that are resumed, ``pause(engine,
    program)`` of those whose KV is to go.
    """

    def __init__(
        self, gate: Gate, engines: Sequence[Engine], at: Callable[[float, Callable[[], None]], None],
        send: Callable[[Any, Any, int | None], None], let_in: Callable[[int], None],
        pause: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self.gate: Any = gate
        self.engines = engines
        self.reads_prompt = bool(getattr(gate, "reads_prompt", False))
        self._counts = bool(getattr(gate, "counts", False))
        self._places = bool(getattr(gate, "places", False))
        self._at, self._send, self._let_in, self._pause = at, send, let_in, pause
        self._held: dict[int, deque[Held]] = {}
        self.held_s: dict[int, float] = {}
        """How long calls that went on, by their number, were held (s)."""
        self._due = INF
        self._busy = False
        self._idle_ticks = 0
        self.tokens = 0
        """Prompt tokens of the calls that are held."""

    def __len__(self) -> int:
        return len(self._held)

    def views(self) -> list[EngineView]:
        """The engines as policies see them."""
        return [engine.view() for engine in self.engines]

    def enter(self, task: Any, effect: Any, call: Call, now: float) -> bool:
        """Ask the gate about a call; True if it went on."""
        if self.gate.next_tick() <= now:
            self.tick(now)
        views = self.views()
        if self.gate.request(call, views, now):
            self._send(task, effect, self.gate.place(call, views, now) if self._places else None)
            self._arm(now)
            return True
        self._held.setdefault(call.program, deque()).append((task, effect, now))
        self.tokens += call.prompt_tokens
        self._arm(now)
        return False

    def left(self, row: Finished, now: float) -> None:
        """A call that went on left its engine; what it was held is part of its wait."""
        call = row.call
        row.hold_s = self.held_s.pop(call.seq, 0.0)
        row.t_arrive -= row.hold_s
        row.wait_s += row.hold_s
        usage = Usage(row.served, row.t_end - row.t_arrive - row.wait_s, row.wait_s)
        if self._counts:
            self.gate.count(call, call.prompt_tokens + row.output_tokens, now)
        (self.gate.abort if row.aborted else self.gate.finish)(call, usage, now)
        self.tick(now)

    def give_up(self, call: Call, now: float) -> Finished | None:
        """The client of a held call left: its row, None if it is not here (any more)."""
        queue = self._held.get(call.program, deque())
        held = next((held for held in queue if held[0].call is call), None)
        if held is None:
            return None
        queue.remove(held)
        if not queue:
            del self._held[call.program]
        self.tokens -= call.prompt_tokens
        since = held[2]
        self.gate.abort(call, Usage(0.0, 0.0, now - since), now)
        return Finished(call, -1, since, t_end=now, wait_s=now - since, hold_s=now - since, aborted=True)

    def end(self, program: int, now: float) -> None:
        """A program is over."""
        self.gate.end(program, now)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Do what the gate says; not within itself."""
        if self._busy:
            return
        self._busy = True
        try:
            for action in self.gate.tick(self.views(), now):
                self._idle_ticks = 0
                if isinstance(action, Pause):
                    if action.frees_kv:
                        self._pause(action.engine, action.program)
                else:
                    self._resume(action, now)
        finally:
            self._busy = False
        self._arm(now)

    def _resume(self, resume: Resume, now: float) -> None:
        queue = self._held.pop(resume.program, None)
        if queue is None:
            return
        self._let_in(resume.program)
        for task, effect, since in queue:
            self.tokens -= task.call.prompt_tokens
            self.held_s[task.call.seq] = now - since
            engine = resume.engine
            if engine is None and self._places:
                engine = self.gate.place(task.call, self.views(), now)
            self._send(task, effect, engine)

    def _arm(self, now: float) -> None:
        """The next tick that the gate wants by itself; stale ones are recognised."""
        due = self.gate.next_tick()
        if due == self._due:
            return
        self._due = due
        if due < INF:
            self._at(max(due, now + GRID), lambda: self._ring(due))

    def _ring(self, due: float) -> None:
        if due != self._due:
            return
        self._due = INF
        if not self._held and not any(engine.view().calls for engine in self.engines):
            return  # nobody is there who could be let in; the next call looks whether a tick is due
        if self._held and not any(engine.view().calls for engine in self.engines):
            self._idle_ticks += 1
            if self._idle_ticks > MOST_IDLE_TICKS:
                raise Stuck(self.stuck())
        self.tick(due)

    def stuck(self) -> str:
        """Who is held for ever, in words."""
        programs = ", ".join(map(str, list(self._held)[:5]))
        return f"gate {self.gate.name} never lets go of {len(self._held)} programs it holds ({programs} ...)"

    def decisions(self) -> Iterator[Decision]:
        """What the gate did since the last time, as rows: ``call`` is the program, ``value`` tokens."""
        events: list[GateEvent] | None = getattr(self.gate, "events", None)
        if events:
            yield from map(gate_row, events)
            events.clear()
