"""A streaming client of ``/v1/completions`` on Locust's HTTP library (geventhttpclient).

Lines are stamped when they are received and parsed when the reply is complete: Locust's own
``iter_lines`` waits for blocks of 1 024 bytes, which is most of a short reply. Times are of
``time.monotonic`` in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gevent
import orjson
from geventhttpclient.client import HTTPClient, HTTPClientPool
from geventhttpclient.connectionpool import ConnectionPool
from geventhttpclient.response import HTTPParseError, HTTPSocketPoolResponse
from geventhttpclient.url import URL

from bench.drivers.calls import CallFailed, Request, Response, request_body
from bench.drivers.completions import KEEP_ALIVE_S
from bench.drivers.stream import Piece, Reading

MOST_OPEN = 1 << 16
"""Connections one process may hold: more than it has file descriptors, so that no call waits for one."""
CONNECT_S = 10.0
PATH = "/v1/completions"
Headers = Callable[[str, Sequence[int]], Mapping[str, str]]
"""What a front wants to know of a call: (``program_id``, prompt) -> headers."""
_HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}


def no_headers(program: str, prompt: Sequence[int]) -> Mapping[str, str]:  # noqa: ARG001
    """Where no front asks."""
    return {}


class _Fresh(ConnectionPool):
    """Does not use connections again that were idle for so long that the server may be closing them."""

    def __init__(self, *where: Any, **options: Any) -> None:
        super().__init__(*where, **options)
        self._idle_since: dict[int, float] = {}

    def return_socket(self, sock: Any) -> None:
        """Remember since when it is idle."""
        self._idle_since[id(sock)] = time.monotonic()
        super().return_socket(sock)

    def _is_socket_alive(self, sock: Any) -> bool:
        since = self._idle_since.pop(id(sock), -KEEP_ALIVE_S)
        return time.monotonic() - since < KEEP_ALIVE_S and super()._is_socket_alive(sock)


class FreshClients(HTTPClientPool):
    """Locust's pool of clients (``FastHttpUser.client_pool``) over such connections."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(concurrency=MOST_OPEN, network_timeout=limit_s, connection_timeout=CONNECT_S)

    def get_client(self, url: str | URL) -> HTTPClient:
        """The client of a server; made on first use."""
        client = super().get_client(url)
        pool = client._connection_pool  # the library has no other place for it
        if not isinstance(pool, _Fresh) and not client.ssl:
            client._connection_pool = _Fresh(
                client.host, client.port, client.host, client.port, size=pool.size,
                network_timeout=pool.network_timeout, connection_timeout=pool.connection_timeout,
            )  # fmt: skip
        return client


class Streams:
    """Calls to one server. ``limit_s``: a call may not last longer. ``headers``
    of a ``program_id`` and a prompt go with that call."""

    def __init__(
        self, clients: HTTPClientPool, url: str, model: str, limit_s: float, headers: Headers = no_headers
    ) -> None:
        self.headers = headers
        self.client = clients.get_client(URL(url))
        self.model = model
        self.limit_s = limit_s
        self.open = 0

    def complete(self, request: Request) -> Response:
        """Send one call and read its reply to the end. Raises CallFailed; whatever stops the greenlet
        closes the connection, and the server gives the call up."""
        body = self.body(request)
        own = self.headers(request.caller.get("program_id", ""), request.prompt)
        headers = {**_HEADERS, **request.headers, **own, "X-Request-Id": request.name}
        limit = gevent.Timeout.start_new(self.limit_s)
        pieces: list[Piece] = []
        sent = time.monotonic()
        try:
            answer = self.client.request("POST", PATH, body, headers)
            with answer:
                _read(answer, pieces)
        except gevent.Timeout as late:
            if late is not limit:
                raise
            raise CallFailed(f"call {request.name}: no reply within {self.limit_s:g} s") from None
        except (OSError, HTTPParseError) as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CallFailed(f"call {request.name}: {reason}") from error
        finally:
            limit.close()
        reading = Reading(request, pieces, answer.get_code())
        for _ in reading.slices():
            gevent.sleep(0)
        return reading.response(sent)

    def body(self, request: Request) -> bytes:
        """The call as JSON: that of the asyncio driver's client, and streamed."""
        asked = request_body(self.model, request)
        return orjson.dumps(asked | {"stream": True, "stream_options": {"include_usage": True}})


def _read(answer: HTTPSocketPoolResponse, pieces: list[Piece]) -> None:
    """Line by line to the end of the reply: each event with the time at which its last line was here."""
    clock, readline, event = time.monotonic, answer.readline, b""
    while line := readline(b"\n"):
        event += line
        if len(line) <= 2:  # the empty line behind an event
            pieces.append((clock(), event))
            event = b""
    if event := event + answer.read():  # an error page has no events, and need not end with a line's end
        pieces.append((clock(), event))
