"""A client of ``/v1/completions`` that speaks token ids, over HTTP.

Times are of ``time.monotonic`` in seconds. Replies come whole; ``t_first`` and ``t_last`` are when the
body's first and last bytes came, which is when the call ended (TTFT is the scheduler's to tell).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
import orjson

KEEP_ALIVE_S = 3.0
"""Connections idle for longer are not used again: servers close theirs after 5 s, and a call that meets
a closing one fails for no reason of its own."""
_PIECE = 1 << 16


@dataclass(frozen=True)
class Request:
    """One call: exactly ``output_tokens`` tokens are asked for, greedily.

    ``name`` is what the server's logs call it; ``caller`` becomes ``vllm_xargs``; prompts share cached
    prefixes within one ``cache_salt`` only ("" : all do).
    """

    name: str
    prompt: Sequence[int]
    output_tokens: int
    caller: Mapping[str, str] = field(default_factory=dict)
    cache_salt: str = ""
    logprobs: bool = False


@dataclass(frozen=True)
class Response:
    """Token truth is the server's: ``prompt_tokens`` and ``output_tokens`` are its usage; ``logprobs``
    of the chosen tokens (natural logarithm), empty unless asked for."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    t_send: float
    t_first: float
    t_last: float
    logprobs: tuple[float, ...] = ()


class CallFailed(RuntimeError):
    """The server refused a call, broke off, or sent what is no reply; names the call."""


class Client(Protocol):
    """What the live driver needs of a client."""

    async def complete(self, request: Request) -> Response:
        """Raises CallFailed."""


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
        body, headers = self._body(request), {"X-Request-Id": request.name}
        headers["Content-Type"] = "application/json"
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

    def _body(self, request: Request) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(request.prompt),
            "max_tokens": request.output_tokens,
            "min_tokens": request.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "return_token_ids": True,
            "vllm_xargs": dict(request.caller),
        }
        if request.cache_salt:
            body["cache_salt"] = request.cache_salt
        if request.logprobs:
            body["logprobs"] = 1
        return orjson.dumps(body)


def _response(request: Request, status: int, body: bytes, stamps: tuple[float, ...]) -> Response:
    if status != 200 or not stamps:
        text = " ".join(body.decode(errors="replace").split())[:300] or "an empty reply"
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
    _verify(request, found)
    return found


def _verify(request: Request, found: Response) -> None:
    """Lengths are forced: what comes back must be what was asked for."""
    asked, got = (len(request.prompt), request.output_tokens), (found.prompt_tokens, found.output_tokens)
    if asked != got or len(found.tokens) != request.output_tokens:
        raise CallFailed(
            f"call {request.name}: asked for (prompt, output) of {asked} tokens, the server counts {got} "
            f"and returns {len(found.tokens)}"
        )
