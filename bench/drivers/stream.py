"""The measuring client: ``/v1/completions`` as a stream of token ids, stamped on receipt, read afterwards.

The same ``Client`` as ``completions.Completions``, with true times of tokens. While a reply comes, its bytes
are kept with their stamps and nothing else is done; it is taken apart when it is over, in slices between
which other streams are stamped. Times are of ``time.monotonic`` in seconds. Raw sockets (systems/http1.py),
no aiohttp, no numpy: docs/client.md says what it costs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import orjson

from bench.drivers.calls import CallFailed, Chunks, Request, Response, one_line, request_body, verify_lengths
from systems.http1 import Connections, HttpFailed

__all__ = ["Reading", "Streaming", "sse_events"]

SLICE = 32
"""Events that are decoded before other streams get their turn: about 0.1 ms."""

Piece = tuple[float, bytes]
"""When bytes were received (s), and they."""


class Streaming:
    """Calls to one server; use as ``async with``. ``limit_s``: a call may not last longer."""

    def __init__(
        self, url: str, model: str, *, limit_s: float = 600.0, headers: Mapping[str, str] | None = None
    ) -> None:
        self.model = model
        self._server = Connections.at(url)
        self._limit_s = limit_s
        self._headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **(headers or {})}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    @property
    def open(self) -> int:
        """Connections, idle ones included."""
        return self._server.open

    async def complete(self, request: Request) -> Response:
        """Send one call and wait for the end of its reply. Raises CallFailed with the server's own words."""
        asked = request_body(self.model, request)
        body = orjson.dumps(asked | {"stream": True, "stream_options": {"include_usage": True}})
        pieces: list[Piece] = []
        t_send = time.monotonic()
        try:
            async with asyncio.timeout(self._limit_s):
                status = await self._exchange("/v1/completions", request, body, pieces)
        except TimeoutError:
            size = sum(len(piece) for _, piece in pieces)
            text = f"not over after {self._limit_s:g} s, {size} bytes of it came"
            raise CallFailed(f"call {request.name}: {text}") from None
        except HttpFailed as error:
            raise CallFailed(f"call {request.name}: {_words(pieces) or error}") from error
        reading = Reading(request, pieces, status)
        for _ in reading.slices():
            await asyncio.sleep(0)
        return reading.response(t_send)

    async def _exchange(self, path: str, request: Request, body: bytes, pieces: list[Piece]) -> int:
        headers = {**self._headers, **request.headers, "X-Request-Id": request.name}
        keep = pieces.append
        async with await self._server.request(
            "POST", path, headers, body, receive=lambda stamp, piece: keep((stamp, piece))
        ) as reply:
            await reply.wait()
            return reply.status


class Reading:
    """A reply that is over, taken apart: what any client kept of it, with the stamps of its pieces (s).

    Raises CallFailed at once for a status other than 200.
    """

    def __init__(self, request: Request, pieces: Sequence[Piece], status: int) -> None:
        self._request, self._pieces = request, pieces
        if status != 200 or not pieces:
            text = one_line(b"".join(piece for _, piece in pieces)) or "an empty reply"
            raise self._failed(f"the server answers {status}: {text}")
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._chunks = Chunks()
        self._usage: Any = None
        self._reason = ""
        self._ended = False

    def _failed(self, text: str) -> CallFailed:
        return CallFailed(f"call {self._request.name}: {text}")

    def slices(self) -> Iterator[None]:
        """Take it apart; each step is short. Raises CallFailed."""
        events: list[Piece] = []
        for event in sse_events(self._pieces):
            if event[1] == b"[DONE]":
                self._ended = True
                continue
            events.append(event)
            if len(events) == SLICE:
                self._take(events)
                events.clear()
                yield
        self._take(events)

    def _take(self, events: Sequence[Piece]) -> None:
        """Some chunks. Those without token ids (a role, usage) are no tokens."""
        whole = _together(events)
        for number, (stamp, data) in enumerate(events):
            try:
                chunk = orjson.loads(data) if whole is None else whole[number]
                if "error" in chunk:
                    raise self._failed(self._so_far(f"an error in the stream: {_error_text(chunk)}"))
                self._usage = chunk.get("usage") or self._usage
                for choice in chunk["choices"]:
                    self._choose(stamp, choice)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise self._failed(
                    self._so_far(f"no chunk of a completion ({error!r}): {one_line(data)}")
                ) from None

    def _choose(self, stamp: float, choice: Any) -> None:
        ids = choice.get("token_ids")
        if ids:
            self._tokens.extend(ids)
            self._chunks.add(stamp, len(ids))
        if self._request.logprobs and choice.get("logprobs"):
            self._logprobs.extend(choice["logprobs"]["token_logprobs"])
        self._reason = choice.get("finish_reason") or self._reason

    def _so_far(self, text: str) -> str:
        return f"after {len(self._tokens)} tokens: {text}"

    def response(self, t_send: float) -> Response:
        """All of it. Raises CallFailed where something is missing, or not as long as asked for."""
        if not self._ended or not self._reason:
            raise self._failed(self._so_far("the stream ends without a finish_reason and [DONE]"))
        if not len(self._chunks):
            raise self._failed(
                "no token_ids in the stream: the server must know return_token_ids (vLLM does)"
            )
        try:
            counted = int(self._usage["prompt_tokens"]), int(self._usage["completion_tokens"])
        except (LookupError, TypeError, ValueError):
            raise self._failed(f"no usage in the stream (it has {self._usage!r})") from None
        found = Response(
            tuple(self._tokens), *counted, t_send, self._chunks[0][0], self._chunks[-1][0],
            tuple(self._logprobs), self._chunks, self._reason,
        )  # fmt: skip
        verify_lengths(self._request, found)
        return found


def sse_events(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The data of each server-sent event, and when its last byte came. An unfinished one is none.

    Comments and other fields are passed over; lines may end in LF, CRLF or CR, and be cut anywhere.
    """
    kept = b""
    for stamp, piece in pieces:
        plain = not kept and piece.startswith(b"data: ") and piece.endswith(b"\n\n")
        if plain and piece.count(b"\n") == 2 and b"\r" not in piece:  # one event, as most pieces are
            yield stamp, piece[6:-2]
            continue
        text = kept + piece if kept else piece
        if b"\r" in text:
            cut = text.endswith(b"\r")  # its LF may be in the next piece
            text = text[: len(text) - cut].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"\r" * cut
        *events, kept = text.split(b"\n\n")
        for event in events:
            data = _data(event)
            if data:
                yield stamp, data


def _data(event: bytes) -> bytes:
    """The lines after "data:"."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


def _together(events: Sequence[Piece]) -> list[Any] | None:
    """The chunks of all events, read at once; None if one of them is no JSON, so that it can be named."""
    try:
        found: list[Any] = orjson.loads(b"[%b]" % b",".join([data for _, data in events]))
    except orjson.JSONDecodeError:
        return None
    return found if len(found) == len(events) else None


def _error_text(chunk: Any) -> str:
    error = chunk["error"]
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _words(pieces: Sequence[Piece]) -> str:
    """What the server said before it broke off, if that was an error."""
    for _, data in sse_events(pieces):
        if b'"error"' in data:
            try:
                return f"an error in the stream: {_error_text(orjson.loads(data))}"
            except (ValueError, LookupError, TypeError):
                continue
    return ""
