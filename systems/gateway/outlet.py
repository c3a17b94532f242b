"""The client's side of a call: a reply that is begun at most once, and written as the engine's comes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import HttpVersion11, web

from systems.gateway.errors import Refused, Speech

HIGH_WATER, LOW_WATER = 1 << 18, 1 << 16
"""Bytes that wait for a client which does not read, from which on the engine is not read either."""
Headers = Sequence[tuple[str, str]]
Sent = web.StreamResponse | None
"""What aiohttp wants to have back from a handler; nothing where the reply went to a raw connection."""
_EVENTS = (("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache"))
_DRAIN_S = 0.02
_LAST = b"0\r\n\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Outlet(ABC):
    """``streams``: the client wants events, so heartbeats make sense to it; ``speech``: how it is
    spoken to. ``begun``: the head is sent; ``passed``: bytes of the engine's, too. ``written_at``: when
    anything was sent last (s)."""

    def __init__(self, speech: Speech, chunked: bool) -> None:
        self.streams = self.begun = self.passed = False
        self.speech = speech
        self.written_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._chunked = chunked
        self._between = True
        self._unsent = b""  # what goes with the next write: each is a system call, and wakes the client

    @property
    def full(self) -> bool:
        """Whether the client is behind."""
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() > HIGH_WATER

    async def begin(self, status: int = 200, headers: Headers = _EVENTS) -> None:
        """Begin with the head, if that was not done for a heartbeat before; ``flush`` or a piece sends it."""
        if not self.begun:
            self.begun = True
            await self._head(status, headers)

    @abstractmethod
    async def _head(self, status: int, headers: Headers) -> None:
        """Send it; ``_transport`` is there afterwards, unless the client has left."""

    @abstractmethod
    async def end(self) -> Sent:
        """The reply that was begun is whole."""

    @abstractmethod
    def whole(self, status: int, headers: Headers, body: bytes) -> Sent:
        """A reply in one piece, where none was begun."""

    def write(self, piece: bytes, now: float, last: bool = False) -> None:
        """Send a piece of the body; ``last``: it may wait for ``end``, which comes at once."""
        transport = self._transport
        if transport is None or transport.is_closing():  # it has left: its handler is about to be cancelled
            return
        self.written_at = now
        self._between = piece.endswith(b"\n\n")
        data = b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece
        if last or self._unsent:
            self._unsent += data
            if not last:
                self.flush()
            return
        transport.write(data)

    def flush(self) -> None:
        """Send what waits for more."""
        data, self._unsent = self._unsent, b""
        transport = self._transport
        if data and not (transport is None or transport.is_closing()):  # else uvloop would raise
            transport.write(data)

    async def refuse(self, refused: Refused, now: float = 0.0) -> Sent:
        """Our own error: as a reply, or as the last event of a stream that has begun."""
        body = refused.body(self.speech.anthropic)
        if not self.begun:
            return self.whole(refused.status, refused.headers(), body)
        self.fail(body, now)
        return await self.end()

    def fail(self, body: bytes, now: float) -> None:
        """An error in a reply that has begun: an event of its own."""
        self.write((b"" if self._between else b"\n\n") + self.speech.error(body), now)

    async def beat(self, now: float) -> None:
        """Tell a client that waits for events that we are still here; not in the middle of an event."""
        if self.streams and self._between and not self.full:
            await self.begin()
            self.write(self.speech.heartbeat, now)

    async def drained(self) -> None:
        """Wait until a client that was behind has read on."""
        transport = self._transport
        while (
            not (transport is None or transport.is_closing())
            and transport.get_write_buffer_size() > LOW_WATER
        ):
            await asyncio.sleep(_DRAIN_S)  # rare, and the transport tells nobody but its own protocol


class AppOutlet(Outlet):
    """To a request of aiohttp's."""

    def __init__(self, request: web.Request, speech: Speech) -> None:
        super().__init__(speech, request.version >= HttpVersion11)
        self._request = request
        self._response = web.StreamResponse()

    async def _head(self, status: int, headers: Headers) -> None:
        self._response = web.StreamResponse(status=status, headers=headers)
        with contextlib.suppress(ConnectionError):  # it has just left
            await self._response.prepare(self._request)
        self._transport = self._request.transport

    async def end(self) -> Sent:
        """The reply that was begun is whole."""
        self.flush()
        with contextlib.suppress(ConnectionError):
            if self._response.prepared:
                await self._response.write_eof()
        return self._response

    def whole(self, status: int, headers: Headers, body: bytes) -> Sent:
        """A reply in one piece, where none was begun."""
        return web.Response(status=status, headers=headers, body=body)


class RawOutlet(Outlet):
    """To a connection of HTTP/1.1; ``keeps``: another request may follow on it."""

    def __init__(self, transport: asyncio.Transport, speech: Speech, keeps: bool) -> None:
        super().__init__(speech, chunked=True)
        self._transport = transport
        self.keeps = keeps

    async def _head(self, status: int, headers: Headers) -> None:
        self._unsent = self._top(status, headers) + b"Transfer-Encoding: chunked\r\n\r\n"

    async def end(self) -> Sent:
        """The reply that was begun is whole."""
        self._unsent += _LAST
        self.flush()
        return None

    def whole(self, status: int, headers: Headers, body: bytes) -> Sent:
        """A reply in one piece, where none was begun."""
        self.begun = True
        self._unsent = b"%bContent-Length: %d\r\n\r\n%b" % (self._top(status, headers), len(body), body)
        self.flush()
        return None

    def _top(self, status: int, headers: Headers) -> bytes:
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, '')}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not self.keeps:
            lines.append("Connection: close")
        if not any(name.lower() == "date" for name, _ in headers):
            lines.append(f"Date: {_date(int(time.time()))}")
        return ("\r\n".join(lines) + "\r\n").encode("latin-1", "replace")


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


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
