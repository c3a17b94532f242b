"""Connections to the engines, one pool each."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from systems.gateway.headers import KEYS
from systems.gateway.workers import Worker, Workers
from systems.http1 import Connections, Exchange, Receive

CONNECT_S = 5.0
"""An engine that does not accept a connection for so long is down."""


class Onward(NamedTuple):
    """Where a request goes on an engine, and with which of its headers."""

    method: str
    path: str
    headers: list[tuple[str, str]]


class Wires:
    """``close`` it in the loop that used it."""

    def __init__(self, workers: Workers) -> None:
        self._pools = {w.id: Connections.at(w.url) for w in workers}
        for pool in self._pools.values():
            pool.connect_s = CONNECT_S

    @property
    def busy(self) -> int:
        """Connections that carry a request."""
        return sum(pool.open - pool.idle for pool in self._pools.values())

    async def post(
        self, worker: Worker, onward: Onward, request_id: str, body: bytes | None, receive: Receive | None
    ) -> Exchange:
        """Send a request, under our name for it; returns with the head of the reply.

        Raises CannotConnect, BrokenOff; ValueError for a header that cannot be sent.
        """
        headers = onward.headers
        if worker.target.key:
            headers = [pair for pair in headers if pair[0].lower() not in KEYS]
            headers.append(("Authorization", f"Bearer {worker.target.key}"))
        if request_id:
            headers = [*headers, ("X-Request-Id", request_id)]
        pool = self._pools[worker.id]
        return await pool.request(onward.method, onward.path, headers, body, receive=receive)

    async def close(self) -> None:
        """All of them, those in use, too."""
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
