"""Tools run on cores: processor sharing over C of them, on virtual time.

With n tools on C cores each gets min(1, C/n) of a core. V(t) is the service
every running tool has received since the start; a tool that needs w seconds
and starts at t is done when V reaches V(t) + w.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from vocabulary import INF, on_grid


class CorePool:
    """``cores`` may be fractional or INF. Times in seconds on the grid."""

    def __init__(self, cores: float) -> None:
        if not cores > 0:
            raise ValueError(f"a tool pool needs more than 0 cores, got {cores}")
        self.cores = cores
        self._jobs: list[tuple[float, int, Any]] = []
        self._served = 0.0
        self._at = 0.0
        self._count = 0
        self._gone: set[int] = set()
        self._running = 0

    def start(self, work_s: float, now: float, what: Any) -> int:
        """Begin a tool that needs ``work_s`` core seconds; returns its ticket."""
        self._settle(now)
        self._count += 1
        self._running += 1
        heappush(self._jobs, (self._served + work_s, self._count, what))
        return self._count

    def cancel(self, ticket: int, now: float) -> None:
        """Take a running tool off the cores."""
        self._settle(now)
        self._gone.add(ticket)
        self._running -= 1

    def next_done(self) -> float:
        """When the next tool is done, if none starts or stops before; INF if idle."""
        self._drop_cancelled()
        if not self._jobs:
            return INF
        return on_grid(max(self._at, self._at + (self._jobs[0][0] - self._served) / self._rate()))

    def pop_done(self, now: float) -> Any:
        """The tool that is done at ``now`` (== ``next_done()``)."""
        self._drop_cancelled()
        target, _, what = heappop(self._jobs)
        self._settle(now)
        self._served = max(self._served, target)
        self._running -= 1
        return what

    def _rate(self) -> float:
        return min(1.0, self.cores / self._running) if self._running else 1.0

    def _settle(self, now: float) -> None:
        self._served += (now - self._at) * self._rate()
        self._at = now

    def _drop_cancelled(self) -> None:
        while self._jobs and self._jobs[0][1] in self._gone:
            self._gone.discard(self._jobs[0][1])
            heappop(self._jobs)
