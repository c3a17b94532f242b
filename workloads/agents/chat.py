"""A client for /v1/chat/completions, for loops that have none of their own.

It does no more than an SDK: one POST per call, the whole reply at once, and it asks again only where the
server was not there or said when to come back.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp

from workloads.agents.contract import MAIN, AgentError, Reply, ToolCall, ToolSpec
from workloads.agents.job import program_url
from workloads.agents.work import UNREADABLE

RETRIES = 2
"""As OpenAI's SDK has it by default (``max_retries``)."""
TIMEOUT_S = 600.0
"""Of one attempt; as OpenAI's SDK has it by default."""
_AGAIN = (429, 503)
_FIRST_WAIT_S, _LONGEST_WAIT_S, _LONGEST_RETRY_AFTER_S = 0.5, 8.0, 60.0


class HttpChat:
    """The LLM of one program behind ``base`` (a relay's or a gateway's URL without /v1). An async context.

    Calls of a thread go to /p/PROGRAM/THREAD/v1 below ``base``; threads may ask at the same time. ``calls``
    counts what was asked, by thread. ``pause`` is how it waits between attempts.
    """

    def __init__(
        self,
        base: str,
        program: int,
        model: str,
        key: str = "",
        *,
        timeout_s: float = TIMEOUT_S,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.base = base.rstrip("/")
        self.program = program
        self.model = model
        self.key = key
        self.url = self.url_of(MAIN)
        self.calls: Counter[str] = Counter()
        self._pause = pause
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    def url_of(self, thread: str) -> str:
        """Base URL under which calls are of this thread."""
        return program_url(self.base, self.program, thread)

    async def __aenter__(self) -> HttpChat:
        """Nothing is opened before the first call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls still out fail. Idempotent."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        thread: str = MAIN,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Reply:
        """One call; messages in OpenAI's form. Raises AgentError naming the call if it is refused or lost."""
        name = f"call {self.calls[thread]} of thread {thread} of program {self.program}"
        self.calls[thread] += 1
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        if tools:
            body["tools"] = [tool.openai() for tool in tools]
        if seed is not None:
            body["seed"] = seed
        text = await self._send(name, f"{self.url_of(thread)}/chat/completions", body)
        return _reply(name, text)

    async def _send(self, name: str, url: str, body: Mapping[str, Any]) -> bytes:
        """The answer's body, after as many attempts as it takes."""
        for attempt in range(RETRIES + 1):
            last = attempt == RETRIES
            try:
                status, text, wait = await self._post(url, body, attempt)
            except aiohttp.ClientConnectorError as error:
                if last:
                    raise AgentError(
                        f"{name}: nobody listens at {url} ({error.os_error.strerror})"
                    ) from error
                wait = None
            except TimeoutError as error:
                raise AgentError(f"{name}: no answer within {self._timeout.total:g} s") from error
            except aiohttp.ClientError as error:
                raise AgentError(f"{name}: lost: {str(error) or type(error).__name__}") from error
            else:
                if status == 200:
                    return text
                if status not in _AGAIN or wait is None or last:
                    raise AgentError(f"{name}: refused with {status}: {_said(text)}")
            await self._pause(_wait_s(attempt, wait))
        raise AssertionError("the last attempt returns or raises")

    async def _post(self, url: str, body: Mapping[str, Any], attempt: int) -> tuple[int, bytes, float | None]:
        """(status, body, seconds of Retry-After if there are any)."""
        if self._session is None:
            # A tree's expansions ask all at once: the client must not be what holds them back.
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(timeout=self._timeout, connector=connector)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        if attempt:
            headers["x-stainless-retry-count"] = str(attempt)  # how OpenAI's SDK says so
        async with self._session.post(url, json=body, headers=headers) as answer:
            return answer.status, await answer.read(), _seconds(answer.headers.get("Retry-After"))


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None


def _wait_s(attempt: int, wait: float | None) -> float:
    """What the server asked for, or twice as long each time."""
    if wait is not None:
        return min(_LONGEST_RETRY_AFTER_S, wait)
    return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**attempt)


def _said(text: bytes) -> str:
    """The message of an error's body, or its beginning, on one line."""
    try:
        error = json.loads(text)["error"]
        said = error["message"] if isinstance(error, Mapping) else error
    except (ValueError, KeyError, TypeError):
        said = text.decode("utf-8", "replace")
    return " ".join(str(said).split())[:300] or "no reason given"


def _reply(name: str, text: bytes) -> Reply:
    try:
        said = json.loads(text)
        message = said["choices"][0]["message"]
        calls = tuple(_tool_call(i, call) for i, call in enumerate(message.get("tool_calls") or ()))
        return Reply(message.get("content") or "", calls, *_usage(said.get("usage") or {}))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise AgentError(f"{name}: the answer is no chat completion: {_said(text)}") from error


def _usage(usage: Mapping[str, Any]) -> tuple[int, int, int]:
    """(prompt, output, cached) tokens."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    tokens = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    return *tokens, -1 if cached is None else int(cached)


def _tool_call(index: int, call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    written = function.get("arguments") or "{}"
    try:
        arguments = json.loads(written)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {UNREADABLE: written}
    return ToolCall(str(call.get("id") or f"call-{index}"), str(function["name"]), arguments)
