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
from typing import NamedTuple, cast

from systems.gateway.bodies import ENDPOINTS, Endpoint
from systems.gateway.outlet import RawOutlet

_LOG = logging.getLogger("gateway")
MAX_HEAD = 1 << 15
IDLE_S = 75.0
"""A connection on which nothing comes for so long is closed, unless a call is under way."""
_SWEEP_S = 5.0
_BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}
_UNUSUAL = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "te", "trailer"})

Serve = Callable[[Endpoint, str, Mapping[str, str], bytes, RawOutlet], Awaitable[object]]


class Head(NamedTuple):
    """A request's head; ``headers`` by names in lower case, ``length`` of the body in bytes."""

    endpoint: Endpoint
    path: str
    headers: dict[str, str]
    length: int

    @property
    def keeps(self) -> bool:
        """Whether another request may follow."""
        return "close" not in self.headers.get("connection", "").lower()


class Listener:
    """Makes connections, and knows them: ``serve`` answers calls, ``other()`` is a protocol for the rest."""

    def __init__(self, serve: Serve, other: Callable[[], asyncio.BaseProtocol], max_body: int) -> None:
        self.serve = serve
        self.other = other
        self.max_body = max_body
        self.open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> Connection:
        """For ``create_server``."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return Connection(self)

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
        before = time.monotonic() - IDLE_S
        for connection in [one for one in self.open if one.task is None and one.heard < before]:
            connection.transport.close()


class Connection(asyncio.Protocol):
    """``task``: the call under way. ``heard``: when something came last (s of time.monotonic)."""

    def __init__(self, listener: Listener) -> None:
        self.task: asyncio.Task[None] | None = None
        self.heard = time.monotonic()
        self.transport: asyncio.Transport
        self._listener = listener
        self._pieces: list[bytes] = []
        self._size = 0
        self._head: Head | None = None
        self._body_at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client; the loop has set TCP_NODELAY."""
        self.transport = cast(asyncio.Transport, transport)
        self._listener.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It left: what it asked for is given up at once."""
        self._listener.open.discard(self)
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Collect a request."""
        self.heard = time.monotonic()
        self._pieces.append(data)
        self._size += len(data)
        if self.task is None:
            self._look()
        elif self._size > MAX_HEAD:
            self.transport.pause_reading()  # it talks before it has listened

    def _look(self) -> None:
        """Whether a request is whole."""
        if self._head is None and not self._begin():
            return
        head = self._head
        if head is None or self._size < self._body_at + head.length:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        end = self._body_at + head.length
        rest = data[end:]
        self._pieces, self._size, self._head = [rest] if rest else [], len(rest), None
        self.task = asyncio.get_running_loop().create_task(self._serve(head, data[self._body_at : end]))

    def _begin(self) -> bool:
        """Read a head; False if it is not there yet, or none for here."""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        end = data.find(b"\r\n\r\n")
        self._pieces = [data]
        if end < 0 and len(data) < MAX_HEAD and data.startswith(b"POST /v1/"[: len(data)]):
            return False
        head = head_of(data[:end]) if end >= 0 else None
        if head is None or head.length > self._listener.max_body:
            self._hand_over(data)
            return False
        self._head, self._body_at = head, end + 4
        return True

    def _hand_over(self, data: bytes) -> None:
        """The connection is another protocol's from now on."""
        other = cast(asyncio.Protocol, self._listener.other())
        self._listener.open.discard(self)
        self.transport.set_protocol(other)
        other.connection_made(self.transport)
        other.data_received(data)

    async def _serve(self, head: Head, body: bytes) -> None:
        outlet = RawOutlet(self.transport, head.endpoint.anthropic, head.keeps)
        try:
            await self._listener.serve(head.endpoint, head.path, head.headers, body, outlet)
        except (asyncio.CancelledError, ConnectionError):
            self.transport.abort()
            return
        except Exception:
            _LOG.exception("%s", head.path)
            self.transport.abort()
            return
        finally:
            self.task = None
        if not head.keeps:
            self.transport.close()
        elif self._pieces:
            self.transport.resume_reading()
            self._look()


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
