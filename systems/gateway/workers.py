"""The engines behind a gateway: which of them live, and what routers and gates see of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from systems.gateway.options import Target
from vocabulary import EngineView

DEAD_S = 10.0
"""An engine that accepts connections but has not answered /health for so long is down."""


class Load(NamedTuple):
    """What /metrics said: calls, share of the KV in use (0 to 1), 16-token KV blocks (0: unknown)."""

    running: int = 0
    waiting: int = 0
    kv_share: float = 0.0
    kv_blocks: int = 0


class Worker:
    """One engine. ``since``: when it came into its state (s since the gateway began), ``why``: how.

    ``calls``: ours that are there and not yet charged; ``answered``: whether it ever has; ``slow``: its
    last /health did not come in time; ``doubt``: set to have /health asked at once.
    """

    def __init__(self, number: int, target: Target) -> None:
        self.id = number
        self.target = target
        self.url = target.url.rstrip("/")
        self.alive = False
        self.answered = False
        self.slow = False
        self.why = "it has not answered yet"
        self.since = 0.0
        self.calls = 0
        self.load = Load()
        self.load_at = -1.0
        self.silent_since: float | None = None
        self.doubt = asyncio.Event()

    def view(self) -> EngineView:
        """As routers and gates see it: calls are ours, KV is as of the last /metrics that came.

        How much there is, too: an engine that was started anew may have another size.
        """
        total = self.load.kv_blocks or self.target.kv_blocks
        used = round(self.load.kv_share * total)
        running = min(self.load.running, self.calls) if self.load_at >= 0.0 else self.calls
        return EngineView(self.id, self.alive, self.calls, used, total, running)


class Workers:
    """All of them, by id. ``told(worker, what, reason)``: it is up, down or slow."""

    def __init__(
        self,
        targets: Sequence[Target],
        now: Callable[[], float],
        told: Callable[[Worker, str, str], None] = lambda _, __, ___: None,
    ) -> None:
        self._all = [Worker(number, target) for number, target in enumerate(targets)]
        self._now = now
        self._told = told
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._all)

    def __getitem__(self, number: int) -> Worker:
        return self._all[number]

    def views(self) -> list[EngineView]:
        """One per engine, in the order of their ids."""
        return [worker.view() for worker in self._all]

    @property
    def any_alive(self) -> bool:
        """Whether one of them lives."""
        return any(worker.alive for worker in self._all)

    @property
    def any_answered(self) -> bool:
        """Whether one of them ever did."""
        return any(worker.answered for worker in self._all)

    async def until_alive(self) -> None:
        """Wait for one that lives."""
        while not self.any_alive:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)

    def up(self, worker: Worker) -> None:
        """Its /health was good."""
        worker.silent_since = None
        worker.answered = True
        slow, worker.slow = worker.slow, False
        if worker.alive and not slow:
            return
        self._turn(worker, True, "it answers")
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def down(self, worker: Worker, reason: str) -> None:
        """It cannot be reached, or says itself that it is dead."""
        worker.silent_since = None
        if worker.alive:
            self._turn(worker, False, reason)
        elif worker.answered:
            worker.why = reason

    def silent(self, worker: Worker, reason: str) -> None:
        """It did not answer in time: slow at first, down after DEAD_S."""
        now = self._now()
        if worker.silent_since is None:
            worker.silent_since = now
        if worker.alive and now - worker.silent_since >= DEAD_S:
            self._turn(worker, False, f"no answer for {DEAD_S:g} s")
        elif worker.alive and not worker.slow:
            worker.slow, worker.why, worker.since = True, reason, now
            self._told(worker, "slow", reason)

    def _turn(self, worker: Worker, alive: bool, why: str) -> None:
        worker.alive, worker.why, worker.since = alive, why, self._now()
        if not alive:
            worker.slow = False
        self._told(worker, "up" if alive else "down", why)
