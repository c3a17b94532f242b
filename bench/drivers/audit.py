"""The client watches itself: a load generator that is late makes a server look slow, or fast."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np

from bench.drivers.delivered import Delivered

TICK_S = 0.02
OK_LAG_S, BAD_LAG_S = 0.020, 0.200
"""p99 of send lag and loop lag up to which a run is ok, and from which on it is invalid."""
OK_CPU, BAD_CPU = 0.70, 0.95
"""The same for the client's share of a core."""
OK_CPU_AHEAD = 0.20
"""The same for one that runs ahead of others: what it computes may be taken from a server on its core."""


@dataclass(frozen=True)
class Audit:
    """``send_lag``: from when a call was due to when it was sent; ``loop_lag``: how late the event loop
    was; both (p50, p99) in seconds. ``cpu``: share of a core; ``most_open``: calls in flight at most.
    ``delivered``: the load that was sent against the one asked for, None if there is no rate.
    ``rss_mb``: the process's largest size so far, whatever else it did. ``ahead``: the client ran before all
    ordinary threads of its core (``bench.affinity.ahead``)."""

    send_lag: tuple[float, float]
    loop_lag: tuple[float, float]
    cpu: float
    most_open: int
    delivered: Delivered | None = None
    rss_mb: float = 0.0
    ahead: bool = False

    @classmethod
    def of(
        cls,
        send: Sequence[float],
        loop: Sequence[float],
        cpu: float,
        most_open: int,
        delivered: Delivered | None = None,
        ahead: bool = False,
    ) -> Audit:
        """From single lags in seconds; none at all count as 0."""
        return cls(_quantiles(send), _quantiles(loop), cpu, most_open, delivered, peak_rss_mb(), ahead)

    @property
    def verdict(self) -> str:
        """ok, suspect or invalid."""
        lag = max(self.send_lag[1], self.loop_lag[1])
        bent = self.delivered is not None and self.delivered.verdict == "invalid"
        if bent or lag >= BAD_LAG_S or self.cpu >= BAD_CPU:
            return "invalid"
        most = OK_CPU_AHEAD if self.ahead else OK_CPU
        return "ok" if lag <= OK_LAG_S and self.cpu <= most else "suspect"

    def __str__(self) -> str:
        lags = f"send lag p50/p99 {self.send_lag[0] * 1e3:.1f}/{self.send_lag[1] * 1e3:.1f} ms"
        loop = f"loop lag p99 {self.loop_lag[1] * 1e3:.1f} ms"
        load = f", {self.delivered}" if self.delivered else ""
        where = "a core, at real-time priority" if self.ahead else "a core"
        own = f"{self.cpu:.0%} of {where}, {self.most_open} calls in flight"
        return f"{self.verdict} ({lags}, {loop}, {own}{load})"


def peak_rss_mb() -> float:
    """The largest resident size of this process so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


@dataclass
class LoopWatch:
    """Measures how late the event loop wakes a sleeper; use as ``async with``."""

    lags: list[float] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_S)
            self.lags.append(max(0.0, time.monotonic() - before - TICK_S))


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    if not len(values):
        return 0.0, 0.0
    p50, p99 = np.quantile(np.asarray(values, dtype=np.float64), [0.5, 0.99])
    return float(p50), float(p99)
