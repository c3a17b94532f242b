"""A client's connection: calls in their usual form are read here, all else is handed to aiohttp.

aiohttp's server takes some 100 us of a call; a POST to a known endpoint with a Content-Length needs little of
what it does. Anything else that comes (other paths, chunked bodies, Expect, pipelining, what is no HTTP)
makes the connection aiohttp's, with all bytes so far, and it stays that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol, cast

from systems.gateway.bodies import ENDPOINTS, Endpoint
from systems.gateway.errors import CHAT, Refused, Speech, speech_for
from systems.gateway.outlet import Outlet, RawOutlet

_LOG = logging.getLogger("gateway")
MAX_HEAD = 1 << 15
"""Bytes of a head, and of what may come while the reply to the request before is awaited."""
IDLE_S = 75.0
"""A connection on which nothing comes for so long is closed, unless a call is under way."""
RECEIVE_S = 60.0
"""A request has come whole so long after its first byte, however often pieces of it come."""
MOST_BUFFERED = 1 << 29
"""Bytes of requests that are still coming, of all connections together."""
LINGER_S = 2.0
"""A client that was refused in the middle of its request may send on for so long, to find the reply."""
_SWEEP_S = 5.0
_BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}
_UNUSUAL = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "te", "trailer"})

Answer = Callable[[], Awaitable[object]]


class Calls(Protocol):
    """Who answers calls."""

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused for a request whose body need not come."""

    def refuse(self, endpoint: Endpoint, refused: Refused, size: int, outlet: Outlet) -> Awaitable[object]:
        """Reply so, and count it; ``size``: bytes that came."""

    def call(
        self, endpoint: Endpoint, path: str, headers: Mapping[str, str], raw: bytes, outlet: Outlet
    ) -> Awaitable[object]:
        """A whole request."""


class Head(NamedTuple):
    """A request's head; ``headers`` by names in lower case, ``length`` of the body in bytes."""

    endpoint: Endpoint
    path: str
    headers: dict[str, str]
    length: int

    @property
    def speech(self) -> Speech:
        """How this client is spoken to."""
        return speech_for(self.endpoint.speech, self.headers)

    @property
    def keeps(self) -> bool:
        """Whether another request may follow."""
        return "close" not in self.headers.get("connection", "").lower()


class Listener:
    """Makes connections, and knows them: ``calls`` answers calls, ``other()`` is a protocol for the rest.

    ``buffered``: bytes of requests that are still coming; ``draining``: connections end with their call.
    """

    def __init__(self, calls: Calls, other: Callable[[], asyncio.BaseProtocol], max_body: int) -> None:
        self.calls = calls
        self.other = other
        self.max_body = max_body
        self.buffered = 0
        self.draining = False
        self.open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> Connection:
        """For ``create_server``."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return Connection(self)

    def drain(self) -> None:
        """Connections that carry nothing are closed, the others with the reply they wait for."""
        self.draining = True
        for connection in list(self.open):
            connection.drain()

    async def close(self) -> None:
        """Cut off all that are open, and wait for what they carry."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [connection.task for connection in self.open if connection.task is not None]
        for connection in list(self.open):
            connection.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        now = time.monotonic()
        for connection in list(self.open):
            connection.look_at_clock(now)


class Connection(asyncio.Protocol):
    """``task``: the call under way. ``heard``: when something came last (s of time.monotonic)."""

    def __init__(self, listener: Listener) -> None:
        self.task: asyncio.Task[None] | None = None
        self.heard = time.monotonic()
        self.transport: asyncio.Transport
        self._listener = listener
        self._pieces: list[bytes] = []
        self._size = 0
        self._began = 0.0  # when the first byte of this request came
        self._head: Head | None = None
        self._body_at = 0
        self._outlet: RawOutlet | None = None
        self._deaf = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client; the loop has set TCP_NODELAY."""
        self.transport = cast(asyncio.Transport, transport)
        self._listener.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It left: what it asked for is given up at once."""
        self._listener.open.discard(self)
        self._keep([])
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Collect a request."""
        self.heard = time.monotonic()
        if self._deaf:
            return
        if not self._size:
            self._began = self.heard
        self._pieces.append(data)
        self._size += len(data)
        self._listener.buffered += len(data)
        if self.task is None:
            self._look()
        elif self._size > MAX_HEAD:  # it talks before it has listened; unread, it could not be seen to leave
            self.transport.abort()

    def drain(self) -> None:
        """End with the reply that is awaited, at once if there is none and nothing has come."""
        if self._outlet is not None:
            self._outlet.keeps = False
        elif not self._size:
            self.transport.close()

    def look_at_clock(self, now: float) -> None:
        """Close it if nothing comes, or a request takes for ever to come."""
        if self.task is not None or self._deaf:
            return
        if self._size and self._began < now - RECEIVE_S:
            self._refuse(Refused(408, f"the request did not come whole within {RECEIVE_S:g} s"))
        elif self.heard < now - IDLE_S:
            self.transport.close()

    def _look(self) -> None:
        """Whether a request is whole."""
        if self._head is None and not self._begin():
            return
        head = self._head
        if head is None:
            return
        if self._size < self._body_at + head.length:
            if self._listener.buffered > MOST_BUFFERED:
                self._refuse(Refused(503, "too many requests are coming in at once", retry_s=1))
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        end = self._body_at + head.length
        rest = data[end:]
        self._keep([rest] if rest else [])
        self._head, self._began = None, self.heard
        outlet = self._outlet = self._out(head, head.keeps and not self._listener.draining)
        body = data[self._body_at : end]
        calls = self._listener.calls
        self._run(head, partial(calls.call, head.endpoint, head.path, head.headers, body, outlet), outlet)

    def _begin(self) -> bool:
        """Read a head; False if it is not there yet, or none for here, or its request is refused."""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        end = data.find(b"\r\n\r\n")
        self._pieces = [data]
        if end < 0 and len(data) < MAX_HEAD and data[:1].isalpha() and b"\n\n" not in data:
            return False
        head = head_of(data[:end]) if end >= 0 else None
        if head is None or head.length > self._listener.max_body:
            self._hand_over(data)
            return False
        self._head, self._body_at = head, end + 4
        try:
            self._listener.calls.check(head.headers)
        except Refused as refused:
            self._refuse(refused)
            return False
        return True

    def _hand_over(self, data: bytes) -> None:
        """The connection is another protocol's from now on."""
        other = cast(asyncio.Protocol, self._listener.other())
        self._listener.open.discard(self)
        self._keep([])
        self.transport.set_protocol(other)
        other.connection_made(self.transport)
        other.data_received(data)

    def _keep(self, pieces: list[bytes]) -> None:
        """What came and is not taken yet is this, from now on."""
        size = sum(map(len, pieces))
        self._listener.buffered += size - self._size
        self._pieces, self._size = pieces, size

    def _refuse(self, refused: Refused) -> None:
        """Before the request is whole: the rest of it is not kept, and the connection ends."""
        head, size = self._head, max(0, self._size - self._body_at)
        self._keep([])
        self._deaf = True
        if head is None:  # who it is and what it wants has not even come
            self._out(None, False).whole(refused.status, refused.headers(), refused.body())
            self._linger()
            return
        outlet = self._outlet = self._out(head, False)
        self._run(head, partial(self._listener.calls.refuse, head.endpoint, refused, size, outlet), outlet)

    def _out(self, head: Head | None, keeps: bool) -> RawOutlet:
        return RawOutlet(self.transport, CHAT if head is None else head.speech, keeps)

    def _run(self, head: Head, answer: Answer, outlet: RawOutlet) -> None:
        self.task = asyncio.get_running_loop().create_task(self._serve(head, answer, outlet))

    async def _serve(self, head: Head, answer: Answer, outlet: RawOutlet) -> None:
        try:
            await answer()
        except (asyncio.CancelledError, ConnectionError):
            self.transport.abort()
            return
        except Exception:
            _LOG.exception("%s", head.path)
            self.transport.abort()
            return
        finally:
            self.task = self._outlet = None
        if self._deaf:
            self._linger()
        elif not outlet.keeps:
            self.transport.close()
        elif self._pieces:
            self._look()

    def _linger(self) -> None:
        """A close with bytes unread would take the reply back: let the client see that it is over first."""
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)


def head_of(data: bytes) -> Head | None:
    """A head in its usual form, a call to one of ENDPOINTS; None for any other."""
    if not data.isascii() or b"\0" in data:
        return None
    line, *lines = data.decode("ascii").split("\r\n")
    method, _, rest = line.partition(" ")
    path, _, version = rest.partition(" ")
    endpoint = _BY_PATH.get(path.partition("?")[0])
    if method != "POST" or version != "HTTP/1.1" or endpoint is None or "\r" in line or "\n" in line:
        return None
    headers: dict[str, str] = {}
    for one in lines:
        name, colon, value = one.partition(":")
        low = name.lower()
        if not colon or low in headers or low in _UNUSUAL or not _is_token(low) or "\n" in one or "\r" in one:
            return None
        headers[low] = value.strip(" \t")
    length = headers.get("content-length", "")
    if "host" not in headers or not length.isdigit() or len(length) > 15:
        return None
    return Head(endpoint, path, headers, int(length))


def _is_token(name: str) -> bool:
    """Whether it is a header's name of letters, digits, hyphens and underscores: any other is unusual."""
    return name.replace("-", "").replace("_", "").isalnum()
