"""The engine's side of a reply: its pieces as they come, kept until it is known where they go."""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from collections.abc import Callable

import orjson

from systems.gateway.observe import Passage
from systems.gateway.outlet import Outlet
from systems.gateway.usage import Counted, counted_in
from systems.http1 import Exchange

_TAIL = 8
"""Last pieces in which a stream's usage is looked for."""
_BREAK = re.compile(rb"\r?\n\r?\n")
_FAILED = re.compile(
    rb'^(?:data: ?\{\s*"error"\s*:(?!\s*null)|data: ?\{\s*"type": ?"error"'
    rb"|event: ?(?:error|response\.failed)\r?$)",
    re.MULTILINE,
)
"""An event that says an error: OpenAI's, Anthropic's, and those of /v1/responses."""
_USAGE = (b'"usage":{', b'"usage": {')


class Intake:
    """``receive`` takes each piece; from ``open`` on it goes to the client at once.

    ``first`` is called when the first one does.
    """

    def __init__(self, passage: Passage, origin: float, hides_usage: bool, first: Callable[[], None]) -> None:
        self._passage = passage
        passage.chunks, passage.t_first, passage.t_last = 0, math.nan, math.nan
        self._first = first
        self._origin = origin
        self._pieces: list[bytes] = []
        self._tail: deque[bytes] = deque(maxlen=_TAIL)
        self._outlet: Outlet | None = None
        self._exchange: Exchange | None = None
        self._easing: asyncio.Task[None] | None = None
        self._hider = UsageHider() if hides_usage else None

    def receive(self, stamp: float, piece: bytes) -> None:
        """A piece came at ``stamp`` (s of time.monotonic)."""
        passage = self._passage
        passage.t_last = now = stamp - self._origin
        passage.chunks += 1
        if passage.chunks == 1:
            passage.t_first = now
        if self._outlet is None:
            self._pieces.append(piece)
            return
        self._tail.append(piece)
        if self._hider is not None:
            piece = self._hider.feed(piece)
            if not piece:
                return
        passage.bytes_out += len(piece)
        self._outlet.write(piece, now, self._exchange is not None and self._exchange.ended)
        if not self._outlet.passed:
            self._outlet.passed = True
            self._first()
        if self._outlet.full and self._easing is None:
            self._easing = asyncio.create_task(self._ease(self._outlet))

    def open(self, outlet: Outlet, exchange: Exchange) -> None:
        """Its head is known and the client's has been sent: pass on what came, and all that comes."""
        pieces, self._pieces = self._pieces, []
        self._outlet, self._exchange = outlet, exchange
        self._passage.chunks -= len(pieces)
        for piece in pieces:
            self.receive(self._passage.t_last + self._origin, piece)
        if not exchange.ended:
            outlet.flush()

    def close(self, now: float) -> None:
        """The stream is over, somehow: send what was kept back."""
        if self._easing is not None:
            self._easing.cancel()
        if self._hider is not None and self._outlet is not None and (rest := self._hider.rest):
            self._passage.bytes_out += len(rest)
            self._outlet.write(rest, now)

    async def _ease(self, outlet: Outlet) -> None:
        """The client is behind: let the engine's side wait for it."""
        if self._exchange is not None:
            self._exchange.pause()
            await outlet.drained()
            self._exchange.resume()
        self._easing = None

    def whole(self) -> bytes:
        """The body of a reply that is not passed on as it comes."""
        return b"".join(self._pieces)

    def counted(self) -> Counted | None:
        """The usage the reply says, if any."""
        return counted_in(b"".join(self._tail or self._pieces))

    def failed(self) -> bool:
        """Whether the stream ends with an error of the engine's."""
        return _FAILED.search(b"".join(self._tail)) is not None


class UsageHider:
    """Takes the usage event out of a stream whose client did not ask for it; passes on whole events only.

    ``rest``: the begin of an event whose end has not come.
    """

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, piece: bytes) -> bytes:
        """What may go on now."""
        if self.rest:
            piece, self.rest = self.rest + piece, b""
        if not piece.endswith(b"\n\n"):
            cut = max((found.end() for found in _BREAK.finditer(piece)), default=0)
            piece, self.rest = piece[:cut], piece[cut:]
        if not any(mark in piece for mark in _USAGE):
            return piece
        ends = [found.end() for found in _BREAK.finditer(piece)]
        events = [piece[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return b"".join(event for event in events if not _is_usage(event))


def _is_usage(event: bytes) -> bool:
    """Whether an event says nothing but the usage: it has no choices."""
    try:
        data = orjson.loads(event.strip().removeprefix(b"data:"))
    except orjson.JSONDecodeError:
        return False
    return isinstance(data, dict) and data.get("choices") == [] and isinstance(data.get("usage"), dict)
