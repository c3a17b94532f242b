"""The door: a gate decides whether a call goes on now, then the gate or a router where to."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from systems.gates.open import Open
from systems.gateway.workers import Workers
from systems.protocols import Gate, Pause, Resume, Router
from vocabulary import INF, Call, EngineView, GateEvent, Usage

Place = Callable[[Call, Sequence[EngineView], float], int | None]
Count = Callable[[Call, int | None, float, int | None], None]
_LOG = logging.getLogger("gateway")
AGAIN_S = 1.0
"""A gate that raised when it was asked by itself is asked again after so long."""
SOONEST_S = 1e-3
"""A gate that is never done does not keep the loop from everybody else."""


NO_CONTROL = "no control socket"
"""How KV was freed where its engine cannot be told: not at all, only sending stops."""


class Freeing(Protocol):
    """Tells engines that a paused program's KV is to go first."""

    def drop(self, program: int, engine: int) -> str:
        """It pauses; how the engine is told, in a word or two."""

    def back(self, program: int) -> None:
        """It goes on: what no engine has heard of yet need not be said."""


class Door:
    """Asks ``gate`` and ``router``, and keeps calls that are held: of a program, first come, first served.

    ``told`` hears the gate's events; ``freeing`` of pauses that are to free KV, None: nobody can.
    ``paused``: programs the gate has paused and not resumed.
    """

    def __init__(
        self,
        gate: Gate,
        router: Router,
        workers: Workers,
        now: Callable[[], float],
        told: Callable[[GateEvent], None] = lambda _: None,
        freeing: Freeing | None = None,
    ) -> None:
        self.gate = gate
        self.paused: set[int] = set()
        self._open = type(gate) is Open  # holds nobody and keeps nothing: it need not be asked
        more: Any = gate
        self._place: Place | None = more.place if getattr(gate, "places", False) else None
        self._count: Count | None = more.count if getattr(gate, "counts", False) else None
        self._router = router
        self._workers = workers
        self._now = now
        self._told = told
        self._freeing = freeing
        self._held: dict[int, deque[asyncio.Future[int | None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = INF
        self._closed = False

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._held.values())

    async def enter(self, call: Call, held: Callable[[], None], limit_s: float) -> int | None:
        """Wait until the gate lets the call go; the engine it resumes it on, None: ``route`` decides.

        ``held`` is called if it has to wait. Cancelled while it waits, it is aborted at the gate; so it is
        after ``limit_s``, with TimeoutError.
        """
        if self._open:
            return None
        passes = self._gate_passes(call)
        self._arm()
        if passes:
            return None
        waiter: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._held.setdefault(call.program, deque()).append(waiter)
        held()
        began = self._now()
        try:
            async with asyncio.timeout(max(0.0, limit_s)):
                return await waiter
        except (asyncio.CancelledError, TimeoutError):
            self._leave(call, waiter, began)
            raise

    def route(self, call: Call, dead: Collection[int] = ()) -> int | None:
        """The engine's id, the gate's choice first; those in ``dead`` are none. None if no other lives."""
        views: Sequence[EngineView] = self._workers.views()
        if dead:
            views = [view._replace(alive=False) if view.id in dead else view for view in views]
        if not any(view.alive for view in views):
            return None
        if self._place is not None:
            place = self._place(call, views, self._now())
            self._tell()
            if place is not None and views[place].alive:
                return place
        return self._router.route(call, views, self._now())

    def finish(self, call: Call, usage: Usage, tokens: int | None = None, prompt: int | None = None) -> None:
        """A call that went on has its reply; ``tokens`` of context now, ``prompt`` of them its prompt; None:
        the engine did not say."""
        if not self._open:
            self._say_length(call, tokens, prompt)
            self.gate.finish(call, usage, self._now())
            self._tick()

    def abort(self, call: Call, usage: Usage, tokens: int | None = None, prompt: int | None = None) -> None:
        """A call that went on leaves without one."""
        if not self._open:
            self._say_length(call, tokens, prompt)
            self.gate.abort(call, usage, self._now())
            self._tick()

    def end(self, program: int) -> None:
        """The program is over."""
        end = getattr(self._router, "end", None)
        if end is not None:
            end(program)
        self.paused.discard(program)
        if not self._open:
            self.gate.end(program, self._now())
            self._tick()

    def turned(self) -> None:
        """An engine has come or gone: the gate may move programs. Never raises."""
        if not self._open:
            self._ring()

    def close(self) -> None:
        """No more ticks by itself; programs may still end."""
        self._closed = True
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _gate_passes(self, call: Call) -> bool:
        passes = self.gate.request(call, self._workers.views(), self._now())
        if passes:
            self._goes_on(call.program)
        self._tell()
        return passes

    def _say_length(self, call: Call, tokens: int | None, prompt: int | None) -> None:
        if self._count is not None:
            self._count(call, tokens, self._now(), prompt)

    def _leave(self, call: Call, waiter: asyncio.Future[int | None], began: float) -> None:
        queue = self._held.get(call.program)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._held[call.program]
        self.gate.abort(call, Usage(0.0, 0.0, self._now() - began), self._now())
        self._tick()

    def _tick(self) -> None:
        try:
            for verdict in self.gate.tick(self._workers.views(), self._now()):
                if isinstance(verdict, Pause):
                    self._pause(verdict)
                else:
                    self._resume(verdict)
        finally:
            self._tell()
        self._arm()

    def _goes_on(self, program: int) -> None:
        if program in self.paused:
            self.paused.discard(program)
            if self._freeing is not None:
                self._freeing.back(program)

    def _resume(self, resume: Resume) -> None:
        self._goes_on(resume.program)
        for waiter in self._held.pop(resume.program, ()):
            if not waiter.done():
                waiter.set_result(resume.engine)

    def _pause(self, pause: Pause) -> None:
        self.paused.add(pause.program)
        if pause.frees_kv:
            how = NO_CONTROL if self._freeing is None else self._freeing.drop(pause.program, pause.engine)
            self._told(GateEvent(self._now(), pause.program, pause.engine, "drop", how, 0))

    def _tell(self) -> None:
        """The gate's events, in order."""
        events: list[GateEvent] | None = getattr(self.gate, "events", None)
        if events:
            found = events[:]
            events.clear()
            for event in found:
                self._told(event)

    def _arm(self, due: float | None = None) -> None:
        """The next tick that the gate wants by itself, or one at ``due``."""
        due = self.gate.next_tick() if due is None else due
        if due == self._due or self._closed:
            return
        self._disarm()
        self._due = due
        if due < INF:
            delay = max(SOONEST_S, due - self._now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._disarm()
        self._due = INF
        try:
            self._tick()
        except Exception:  # a policy's: who is held must not wait for ever
            _LOG.exception("gate %s", self.gate.name)
            self._arm(self._now() + AGAIN_S)
