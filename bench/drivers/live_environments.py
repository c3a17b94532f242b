"""Sandboxes in a live run: the policy and the node of virtual time, on the clock of the event loop.

Their costs are waited for, not worked: a live run's tools are times, and so are their sandboxes. The gate
is in the gateway, which the client does not see: a program counts as let in when it arrives, so that
preparing ahead means at arrival.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bench.drivers.environments import Environments
from systems.protocols import Environment
from vocabulary import Decision


class LiveEnvironments:
    """Made inside the loop; ``now`` gives seconds since the run began."""

    def __init__(self, policy: Environment, now: Callable[[], float]) -> None:
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._due: set[asyncio.TimerHandle] = set()
        self.host = Environments(policy, self._at)

    def arrive(self, program: int) -> None:
        """A program is here, and goes in."""
        now = self._now()
        self.host.arrive(program, now)
        self.host.resumed(program, now)

    async def ready(self, program: int) -> None:
        """A tool starts: wait for its sandbox."""
        there: asyncio.Future[None] = self._loop.create_future()

        def go() -> None:
            if not there.done():  # whoever waited may be gone
                there.set_result(None)

        if not self.host.use(program, self._now(), go):
            await there

    def end(self, program: int) -> None:
        """A program is over."""
        self.host.end(program, self._now())

    def close(self) -> tuple[dict[str, float], list[Decision]]:
        """The run is over: nothing is prepared or torn down any more. The totals, and what happened when."""
        for handle in self._due:
            handle.cancel()
        self._due.clear()
        self.host.close(self._now())
        return self.host.totals(), self.host.events

    def _at(self, time: float, act: Callable[[], None]) -> None:
        def run() -> None:
            self._due.discard(handle)
            act()

        handle = self._loop.call_later(max(0.0, time - self._now()), run)
        self._due.add(handle)
