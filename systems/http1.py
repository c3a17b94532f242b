"""A raw HTTP/1.1 client: a pool of connections to one server, replies as they come, stamped on receipt.

    async with Connections("127.0.0.1", 8000) as server:
        async with await server.request("POST", "/v1/completions", headers, body) as reply:
            async for stamp, piece in reply:  # or receive=..., and await reply.wait()

Standard library only, on any event loop. Stamps are ``time.monotonic`` in seconds, taken when the bytes leave
the kernel, before anything is done with them: a busy reader makes them no later, only a busy loop does.
There are no time limits here but for connecting; use ``asyncio.timeout``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Self, cast

from systems.http1_messages import (
    BadReply,
    BrokenOff,
    CannotConnect,
    Headers,
    HttpFailed,
    Reply,
    request_bytes,
    server_of,
)

__all__ = ["BrokenOff", "CannotConnect", "Connections", "Exchange", "HttpFailed"]

KEEP_ALIVE_S = 3.0
"""Connections idle for longer are not used again: vLLM closes its own after 5 s."""
STALE_S = 0.05
"""A kept connection that is lost so soon after a request went out was closed by an idle server, before it saw
the request. Later than that the server may have worked on it."""
CONNECT_S = 30.0
HIGH_WATER, LOW_WATER = 1 << 18, 1 << 16
"""Bytes that wait for a reader, from which on no more are taken from the socket, and up to which again."""

Receive = Callable[[float, bytes], None]
"""Told of each piece of a body: its stamp (s), and its bytes. Must not raise."""


class Connections:
    """Keep-alive connections to one server; at most ``limit`` requests at a time, in order (None: any).

    ``tls``: for https. ``stale_s``: see STALE_S. Use as ``async with``, or ``close``: calls then break off.
    """

    def __init__(
        self, host: str, port: int, limit: int | None = None, keep_alive_s: float = KEEP_ALIVE_S, *,
        tls: ssl.SSLContext | None = None, connect_s: float = CONNECT_S, stale_s: float = STALE_S,
    ) -> None:  # fmt: skip
        self.host, self.port = host, port
        self.where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.keep_alive_s, self.connect_s, self.stale_s = keep_alive_s, connect_s, stale_s
        self._tls = tls
        self._slots = None if limit is None else asyncio.Semaphore(limit)
        self._idle: dict[_Connection, float] = {}  # since when; the last one is taken first
        self._open: set[_Connection] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False
        self._none_left: asyncio.Future[None] | None = None

    @classmethod
    def at(cls, url: str, limit: int | None = None, keep_alive_s: float = KEEP_ALIVE_S) -> Self:
        """For http(s)://HOST[:PORT]; a path is not looked at. Raises ValueError if that is no such URL."""
        host, port, secure = server_of(url)
        tls = ssl.create_default_context() if secure else None
        return cls(host, port, limit, keep_alive_s, tls=tls)

    @property
    def open(self) -> int:
        """Connections, idle ones included."""
        return len(self._open)

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return len(self._idle)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections and wait until they are gone."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for connection in list(self._open):
            connection.transport.abort()
        if self._open:
            self._none_left = asyncio.get_running_loop().create_future()
            await self._none_left

    async def request(
        self, method: str, path: str, headers: Headers = (), body: bytes | None = None, *,
        receive: Receive | None = None,
    ) -> Exchange:  # fmt: skip
        """Send a request; returns when the head of the reply is here.

        Body pieces go to ``receive`` as they come (some may, before this returns), else to who iterates.
        A kept connection that closes within ``stale_s``, before a byte of the reply came, was closed by an
        idle server: the request goes out again, on a fresh one; without one it is BrokenOff, for it may have
        been seen. Raises CannotConnect, BrokenOff; ValueError for what must not be in it (line breaks, ours).
        """
        data = request_bytes(self.where, method, path, headers, body)
        if self._closed:
            raise CannotConnect(f"{self.where}: this client is closed")
        if self._slots is not None:
            await self._slots.acquire()
        exchange = Exchange(self, method, receive)
        try:
            await self._send(exchange, data)
        except BaseException:  # a cancelled one must not keep its place
            exchange.close()
            raise
        return exchange

    async def _send(self, exchange: Exchange, data: bytes) -> None:
        kept = self._take_idle()
        if kept is not None and await exchange._answered(kept, data):
            return
        try:
            fresh = await self._connect()
        except CannotConnect as error:
            if not exchange.sent:
                raise
            raise BrokenOff(f"{error}, and a kept one closed with the request on it", False) from error
        await exchange._answered(fresh, data)

    async def _connect(self) -> _Connection:
        loop, made = asyncio.get_running_loop(), _Connection(self)
        try:
            async with asyncio.timeout(self.connect_s):
                await loop.create_connection(lambda: made, self.host, self.port, ssl=self._tls)
        except OSError as error:
            made.give_up()
            text = error.strerror or str(error) or f"no answer within {self.connect_s:g} s"
            raise CannotConnect(f"{self.where}: cannot connect: {text}") from error
        except asyncio.CancelledError:
            made.give_up()
            raise
        return made

    def _take_idle(self) -> _Connection | None:
        fresh = time.monotonic() - self.keep_alive_s
        while self._idle:
            connection, since = self._idle.popitem()
            if since > fresh and not connection.transport.is_closing():
                return connection
            connection.transport.abort()
        return None

    def _put(self, connection: _Connection, reusable: bool) -> None:
        """An exchange is done with its connection."""
        transport = connection.transport
        clean = reusable and not transport.is_closing() and not transport.get_write_buffer_size()
        if not clean or self._closed or self.keep_alive_s <= 0:
            transport.abort()
            return
        connection.kept = True
        self._idle[connection] = time.monotonic()
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(self.keep_alive_s, self._reap)

    def _reap(self) -> None:
        """Close what has been idle for too long; look again when the next one will be."""
        now, self._reaper = time.monotonic(), None
        for connection, since in list(self._idle.items()):
            left = since + self.keep_alive_s - now
            if left > 0:
                self._reaper = asyncio.get_running_loop().call_later(left, self._reap)
                return
            del self._idle[connection]
            connection.transport.abort()

    def _leave(self) -> None:
        if self._slots is not None:
            self._slots.release()

    def _gone(self, connection: _Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
        if self._none_left is not None and not self._open and not self._none_left.done():
            self._none_left.set_result(None)


class Exchange:
    """A request and its reply: iterate over (stamp, piece), or ``wait`` if pieces go to a callback.

    Close it (``async with`` does): a reply that is not over is given up with its connection, which tells the
    server. ``sent``: when the request was handed to the kernel, for the first time if it went out twice;
    ``head_at``: when the reply's head was here. ``ended``: its last piece has come, or comes now.
    """

    def __init__(self, pool: Connections, method: str, receive: Receive | None) -> None:
        self.sent = self.head_at = 0.0
        self.over = self.ended = False
        self._pool, self._method, self._receive = pool, method, receive
        self._reply = Reply(method)
        self._connection: _Connection | None = None
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._held = 0  # bytes in ``_pieces``
        self._paused = self._stale = False
        self._error: HttpFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._pieces_wake = True

    @property
    def status(self) -> int:
        """Of the reply."""
        return self._reply.status

    @property
    def headers(self) -> list[tuple[str, str]]:
        """(name, value) as they came."""
        return self._reply.headers

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its name's case."""
        return self._reply.header(name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[float, bytes]:
        while not self._pieces:
            if self.over:
                raise self._error or StopAsyncIteration
            await self._woken()
        stamp, piece = self._pieces.popleft()
        self._held -= len(piece)
        if self._paused and self._held <= LOW_WATER:
            self.resume()
        return stamp, piece

    async def read(self) -> bytes:
        """The rest of the body. Raises BrokenOff."""
        return b"".join([piece async for _, piece in self])

    async def wait(self) -> None:
        """Until the reply is over, without being woken for its pieces. Raises BrokenOff."""
        self._pieces_wake = False
        while not self.over:
            await self._woken()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Take no more from the socket for now; the server will notice, in the end."""
        if self._connection is not None and not self._paused:
            self._paused = True
            self._connection.transport.pause_reading()

    def resume(self) -> None:
        """Go on after ``pause``."""
        if self._connection is not None and self._paused and not self._connection.transport.is_closing():
            self._connection.transport.resume_reading()
        self._paused = False

    def close(self) -> None:
        """Give the connection back; a reply that is not over is given up. Idempotent."""
        if not self.over:
            self._end(BrokenOff(f"{self._pool.where}: given up by this side", self._reply.began))

    # -- what the connection tells -----------------------------------------------------

    async def _answered(self, connection: _Connection, data: bytes) -> bool:
        """Send, and wait for the head; False if the connection was stale. Raises BrokenOff."""
        self._connection, self._stale = connection, False
        if connection.lost or connection.transport.is_closing():
            self._lost(None)
        else:
            connection.exchange = self
            self.sent = self.sent or time.monotonic()
            connection.transport.write(data)
        while not (self.status or self.over or self._stale):
            await self._woken()
        if self._error is not None and not self.status:
            raise self._error
        return not self._stale

    def _received(self, stamp: float, data: bytes) -> None:
        reply, headless = self._reply, not self._reply.status
        try:
            piece = reply.feed(data)
        except BadReply as bad:
            self._end(BrokenOff(f"{self._pool.where}: {bad}", True))
            return
        self.ended = reply.ended
        if headless and reply.status:
            self.head_at = stamp
        if piece and self._receive is not None:
            self._receive(stamp, piece)
        elif piece:
            self._queue(stamp, piece)
        if reply.ended:
            self._end(None)
        elif self._waiter is not None and (headless or self._pieces_wake):
            self._wake()

    def _queue(self, stamp: float, piece: bytes) -> None:
        self._pieces.append((stamp, piece))
        self._held += len(piece)
        if self._held >= HIGH_WATER:
            self.pause()

    def _lost(self, error: Exception | None) -> None:
        """The connection is closed, by the other side or by an error."""
        connection, reply = self._connection, self._reply
        unseen = not (reply.began or (self.sent and time.monotonic() - self.sent > self._pool.stale_s))
        try:
            reply.eof()
        except BadReply as bad:
            if connection is not None and connection.kept and unseen:
                self._connection, self._stale = None, True
                self._wake()
                return
            why = f" ({error.__class__.__name__}: {error})" if error else ""
            self._end(BrokenOff(f"{self._pool.where}: {bad}{why}", reply.began))
        else:
            self._end(None)

    def _end(self, error: HttpFailed | None) -> None:
        """Over: hand on the connection and the place in the pool, once."""
        if self.over:
            return
        self.over, self._error = True, error
        connection = self._connection
        if connection is not None:
            self.resume()
            self._connection = connection.exchange = None
            self._pool._put(connection, self._reply.ended and self._reply.reusable)
        self._pool._leave()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _woken(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class _Connection(asyncio.Protocol):
    """``kept``: it has served a request before. ``lost``: it is closed."""

    def __init__(self, pool: Connections) -> None:
        self.exchange: Exchange | None = None
        self.kept = self.lost = self.given_up = False
        self._pool = pool

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.given_up:
            self.transport.abort()
            return
        self._pool._open.add(self)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._pool._closed:
            self.transport.abort()

    def give_up(self) -> None:
        """Nobody waits for it any more; uvloop may report it all the same, and then never its end."""
        self.given_up = True
        if self in self._pool._open:
            self.transport.abort()
            self._pool._gone(self)

    def data_received(self, data: bytes) -> None:
        stamp = time.monotonic()
        if self.exchange is None:
            self.transport.abort()  # nobody asked
        else:
            self.exchange._received(stamp, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._pool._gone(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange._lost(error)
