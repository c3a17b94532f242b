"""A client of ``/v1/completions`` that takes replies whole, over aiohttp. ``stream.py`` is the measuring one.

``t_first`` and ``t_last`` are when the body's first and last bytes came, which is when the call ended (TTFT
is the scheduler's to tell).
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import aiohttp
import orjson

from bench.drivers.calls import (
    CallFailed,
    Client,
    Request,
    Response,
    one_line,
    request_body,
    verify_lengths,
)

__all__ = ["CallFailed", "Client", "Completions", "Request", "Response"]

KEEP_ALIVE_S = 3.0
"""Connections idle for longer are not used again: servers close theirs after 5 s, and a call that meets
a closing one fails for no reason of its own."""
_PIECE = 1 << 16


class Completions:
    """Calls to one server; use as ``async with``. ``limit_s``: a call may not last longer."""

    def __init__(self, url: str, model: str, *, limit_s: float = 600.0) -> None:
        self.url = f"{url}/v1/completions"
        self.model = model
        self._limit = aiohttp.ClientTimeout(total=limit_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._limit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def complete(self, request: Request) -> Response:
        """Send one call and wait for its reply. Raises CallFailed."""
        if self._session is None:
            raise RuntimeError("use the client inside `async with`")
        body = orjson.dumps(request_body(self.model, request))
        headers = {**request.headers, "X-Request-Id": request.name, "Content-Type": "application/json"}
        t_send = time.monotonic()
        try:
            async with self._session.post(self.url, data=body, headers=headers) as answer:
                pieces, stamps = [], []
                async for piece in answer.content.iter_chunked(_PIECE):
                    stamps.append(time.monotonic())
                    pieces.append(piece)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CallFailed(f"call {request.name}: {reason}") from error
        return _response(request, status, b"".join(pieces), (t_send, stamps[0], stamps[-1]) if stamps else ())


def _response(request: Request, status: int, body: bytes, stamps: tuple[float, ...]) -> Response:
    if status != 200 or not stamps:
        text = one_line(body) or "an empty reply"
        raise CallFailed(f"call {request.name}: the server answers {status}: {text}")
    try:
        answer = orjson.loads(body)
        choice, usage = answer["choices"][0], answer["usage"]
        logprobs = choice["logprobs"]["token_logprobs"] if request.logprobs else ()
        found = Response(
            tuple(choice["token_ids"]), int(usage["prompt_tokens"]), int(usage["completion_tokens"]),
            stamps[0], stamps[1], stamps[2], tuple(logprobs),
        )  # fmt: skip
    except (ValueError, LookupError, TypeError) as error:
        raise CallFailed(f"call {request.name}: no completion with token_ids and usage ({error!r})") from None
    verify_lengths(request, found)
    return found
