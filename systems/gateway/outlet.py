"""The client's side of a call: a reply that is begun at most once, and written as the engine's comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from aiohttp import HttpVersion11, web

from systems.gateway.errors import error_event

HIGH_WATER, LOW_WATER = 1 << 18, 1 << 16
"""Bytes that wait for a client which does not read, from which on the engine is not read either."""
_EVENTS = (("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache"))
_HEARTBEAT = b": waiting\n\n"
_DRAIN_S = 0.02


class Outlet:
    """``streams``: the client wants events, so heartbeats make sense to it. ``begun``: the head is sent;
    ``passed``: bytes of the engine's, too. ``written_at``: when anything was sent last (s)."""

    def __init__(self, request: web.Request, streams: bool, anthropic: bool) -> None:
        self.streams = streams
        self.anthropic = anthropic
        self.written_at = 0.0
        self._request = request
        self._response: web.StreamResponse | None = None
        self._transport: asyncio.Transport | None = None
        self._chunked = request.version >= HttpVersion11
        self._between = True
        self.passed = False

    @property
    def begun(self) -> bool:
        """Whether the client has a status already."""
        return self._response is not None

    @property
    def full(self) -> bool:
        """Whether the client is behind."""
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() > HIGH_WATER

    async def begin(self, status: int = 200, headers: Sequence[tuple[str, str]] = _EVENTS) -> None:
        """Send the head, if it was not sent for a heartbeat before."""
        if self._response is not None:
            return
        self._response = response = web.StreamResponse(status=status, headers=headers)
        with contextlib.suppress(ConnectionError):  # it has just left
            await response.prepare(self._request)
        self._transport = self._request.transport

    def write(self, piece: bytes, now: float) -> None:
        """Send a piece of the body."""
        transport = self._transport
        if transport is None or transport.is_closing():  # it has left: its handler is about to be cancelled
            return
        self.written_at = now
        self._between = piece.endswith(b"\n\n")
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    async def beat(self, now: float) -> None:
        """Tell a client that waits for events that we are still here; not in the middle of an event."""
        if self.streams and self._between and not self.full:
            await self.begin()
            self.write(_HEARTBEAT, now)

    async def drained(self) -> None:
        """Wait until a client that was behind has read on."""
        transport = self._transport
        while (
            not (transport is None or transport.is_closing())
            and transport.get_write_buffer_size() > LOW_WATER
        ):
            await asyncio.sleep(_DRAIN_S)  # rare, and the transport tells nobody but its own protocol

    def fail(self, body: bytes, now: float) -> None:
        """An error in a reply that has begun: an event of its own."""
        self.write((b"" if self._between else b"\n\n") + error_event(body, self.anthropic), now)

    async def end(self) -> web.StreamResponse:
        """The reply is whole."""
        response = self._response
        assert response is not None  # it was begun
        with contextlib.suppress(ConnectionError):  # it has just left
            if response.prepared:
                await response.write_eof()
        return response


class Hearts:
    """Beats for all who wait: nobody waits longer than ``every_s`` for a sign of life."""

    def __init__(self, every_s: float, now: Callable[[], float]) -> None:
        self._every = every_s
        self._now = now
        self._outlets: set[Outlet] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, outlet: Outlet) -> None:
        """It waits from now on."""
        self._outlets.add(outlet)

    def remove(self, outlet: Outlet) -> None:
        """It is over."""
        self._outlets.discard(outlet)

    def start(self) -> None:
        """In a running loop."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """No more beats; idempotent."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        period = self._every / 4
        while True:
            await asyncio.sleep(period)
            now = self._now()
            for outlet in [one for one in self._outlets if one.written_at + self._every - period <= now]:
                with contextlib.suppress(ConnectionError):  # it has just left
                    await outlet.beat(now)
