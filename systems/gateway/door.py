"""The door: a gate decides whether a call goes on now, then a router where to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection

from systems.gates.open import Open
from systems.gateway.workers import Workers
from systems.protocols import Gate, Router
from vocabulary import INF, Call, Usage


class Door:
    """Asks ``gate`` and ``router``, and keeps calls that are held: of a program, first come, first served."""

    def __init__(self, gate: Gate, router: Router, workers: Workers, now: Callable[[], float]) -> None:
        self._gate = gate
        self._open = type(gate) is Open  # holds nobody and keeps nothing: it need not be asked
        self._router = router
        self._workers = workers
        self._now = now
        self._held: dict[int, deque[asyncio.Future[int | None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = INF

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._held.values())

    async def enter(self, call: Call, held: Callable[[], None], limit_s: float) -> int | None:
        """Wait until the gate lets the call go; the engine it names, None: the router decides.

        ``held`` is called if it has to wait. Cancelled while it waits, it is aborted at the gate; so it is
        after ``limit_s``, with TimeoutError.
        """
        if self._open:
            return None
        if self._gate.request(call, self._workers.views(), self._now()):
            self._arm()
            return None
        waiter: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        queue = self._held.setdefault(call.program, deque())
        queue.append(waiter)
        self._arm()
        held()
        began = self._now()
        try:
            async with asyncio.timeout(max(0.0, limit_s)):
                return await waiter
        except (asyncio.CancelledError, TimeoutError):
            self._leave(call, waiter, began)
            raise

    def route(self, call: Call, dead: Collection[int] = ()) -> int | None:
        """The engine's id; those in ``dead`` are no choice. None if no other lives."""
        views = self._workers.views()
        if dead:
            views = [view._replace(alive=False) if view.id in dead else view for view in views]
        if not any(view.alive for view in views):
            return None
        return self._router.route(call, views, self._now())

    def finish(self, call: Call, usage: Usage) -> None:
        """A call that went on has its reply."""
        if not self._open:
            self._gate.finish(call, usage, self._now())
            self._tick()

    def abort(self, call: Call, usage: Usage) -> None:
        """A call that went on leaves without one."""
        if not self._open:
            self._gate.abort(call, usage, self._now())
            self._tick()

    def end(self, program: int) -> None:
        """The program is over."""
        end = getattr(self._router, "end", None)
        if end is not None:
            end(program)
        if not self._open:
            self._gate.end(program, self._now())
            self._tick()

    def close(self) -> None:
        """No more ticks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self, call: Call, waiter: asyncio.Future[int | None], began: float) -> None:
        queue = self._held.get(call.program)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._held[call.program]
        self.abort(call, Usage(0.0, 0.0, self._now() - began))

    def _tick(self) -> None:
        for resume in self._gate.tick(self._workers.views(), self._now()):
            for waiter in self._held.pop(resume.program, ()):
                if not waiter.done():
                    waiter.set_result(resume.engine)
        self._arm()

    def _arm(self) -> None:
        """The next tick that the gate wants by itself."""
        due = self._gate.next_tick()
        if due == self._due:
            return
        self.close()
        self._due = due
        if due < INF:
            delay = max(0.0, due - self._now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer, self._due = None, INF
        self._tick()
