"""A closed-loop client of streams for the gateway's benchmark: N connections, each one call after the other.

Raw ``asyncio.Protocol``: bytes are stamped on receipt and counted when the reply is over.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import orjson

_END = b"0\r\n\r\n"
_TOKEN = b'"content":" token"'


@dataclass
class Tally:
    """Replies that ended in a stretch of time. ``first_s``: per call, from sending to the first body byte;
    ``total_s``: to the last. ``pieces``: reads that brought something. ``errors``: what went wrong."""

    first_s: list[float] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)
    pieces: int = 0
    errors: list[str] = field(default_factory=list)


def text_of(size: int, seed: int) -> str:
    """Text like code and prose: words, line breaks, quotes; about ``size`` bytes."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(400)]
    marks = [" "] * 16 + ["\n", '"', ", ", "\n    "]
    found: list[str] = []
    length = 0
    while length < size:
        found += (draw.choice(words), draw.choice(marks))
        length += len(found[-1]) + len(found[-2])
    return "".join(found)[:size]


def request_of(
    program: str, chunks: int, size: int, *, host: str = "gateway", asks_usage: bool = True
) -> bytes:
    """A streaming chat call of about ``size`` bytes that names its program in the body and in a header.

    ``asks_usage``: the client wants an event with the usage (``include_usage``).
    """
    asked = {"stream_options": {"include_usage": True}} if asks_usage else {}
    body = orjson.dumps({
        "model": "fake", "messages": [{"role": "user", "content": text_of(size, 1)}],
        "max_tokens": chunks, "stream": True, **asked,
        "temperature": 0, "vllm_xargs": {"program_id": program},
    })  # fmt: skip
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"X-Session-ID: {program}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Stream(asyncio.Protocol):
    """One connection; ``again`` is asked for the next request when a reply is over (None: enough)."""

    def __init__(self, chunks: int, again: Callable[[], bytes | None], tally: Callable[[], Tally]) -> None:
        self._chunks = chunks
        self._again = again
        self._tally = tally
        self._got: list[bytes] = []
        self._tail = b""
        self._sent = self._first = 0.0
        self._out: asyncio.Transport
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._out = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """In the middle of a reply that is an error."""
        if not self.over.done():
            self._tally().errors.append(f"connection lost after {len(self._got)} pieces: {exc}")
            self.over.set_result(None)

    def data_received(self, data: bytes) -> None:
        """A piece of the reply; it is over with the last HTTP chunk, or it is an error."""
        now = time.perf_counter()
        self._got.append(data)
        if not self._first and (len(self._got) > 1 or b"data:" in data):
            self._first = now
        self._tail = (self._tail + data)[-len(_END) :]
        if self._tail == _END:
            self._finish(now)
        elif len(self._got) == 1 and not data.startswith(b"HTTP/1.1 200"):
            self._tally().errors.append(data[:200].decode(errors="replace"))
            self._close()

    def _finish(self, now: float) -> None:
        tally, reply = self._tally(), b"".join(self._got)
        if reply.count(_TOKEN) != self._chunks:
            reply = unchunked(reply)  # a token may lie across two chunks of HTTP
        found = reply.count(_TOKEN)
        if found != self._chunks or b"data: [DONE]" not in reply:
            tally.errors.append(f"{found} of {self._chunks} tokens, end: {reply[-200:]!r}")
        tally.first_s.append(self._first - self._sent)
        tally.total_s.append(now - self._sent)
        tally.pieces += len(self._got)
        self._send()

    def _send(self) -> None:
        request = self._again()
        if request is None:
            self._close()
            return
        self._got.clear()
        self._tail, self._first, self._sent = b"", 0.0, time.perf_counter()
        self._out.write(request)

    def _close(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
        self._out.close()


class Load:
    """``streams`` connections to a port in a closed loop, until ``stop``; ``take`` begins a new tally."""

    def __init__(
        self, port: int, streams: int, chunks: int, size: int, prefix: str, *, asks_usage: bool = True
    ) -> None:
        self._port = port
        self._chunks = chunks
        self._requests = [
            request_of(f"{prefix}-{i}", chunks, size, asks_usage=asks_usage) for i in range(streams)
        ]
        self._tally = Tally()
        self._going = True
        self._streams: list[Stream] = []

    async def start(self, spread_s: float = 0.0) -> None:
        """All connections, evenly over ``spread_s``: closed loops that begin together stay together."""
        gap = spread_s / len(self._requests)
        opening = (self._open(request, number * gap) for number, request in enumerate(self._requests))
        self._streams = list(await asyncio.gather(*opening))

    async def _open(self, request: bytes, after_s: float) -> Stream:
        await asyncio.sleep(after_s)
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(self._maker(request), "127.0.0.1", self._port)
        return stream

    def _maker(self, request: bytes) -> Callable[[], Stream]:
        return lambda: Stream(self._chunks, lambda: request if self._going else None, lambda: self._tally)

    def take(self) -> Tally:
        """What ended since the last ``take``."""
        tally, self._tally = self._tally, Tally()
        return tally

    async def stop(self) -> None:
        """Wait until the replies under way are over."""
        self._going = False
        await asyncio.gather(*(stream.over for stream in self._streams))


async def once(port: int, requests: Sequence[bytes], at_a_time: int, chunks: int) -> Tally:
    """Each request once."""
    tally, left = Tally(), iter(requests)
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(
            lambda: Stream(chunks, lambda: next(left, None), lambda: tally), "127.0.0.1", port
        )
        for _ in range(min(at_a_time, len(requests)))
    ]
    await asyncio.gather(*(stream.over for _, stream in made))
    return tally


def unchunked(reply: bytes) -> bytes:
    """The body of a reply in HTTP's chunked encoding, as far as it is whole."""
    _, _, rest = reply.partition(b"\r\n\r\n")
    pieces: list[bytes] = []
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found or not (length := int(size.partition(b";")[0] or b"0", 16)):
            return b"".join(pieces)
        pieces.append(rest[:length])
        rest = rest[length + 2 :]
