"""A scripted engine with its own socket: what a real client asks is kept, what it is told is decided here.

It has what the gateway looks at (/health, /metrics) and answers /v1/messages (+ count_tokens),
/v1/responses, /v1/chat/completions and /v1/models. The first call of a conversation that offers a tool we
know how to use is answered with a call of it, all others with a text.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from benchmarks.client_parts import replies
from benchmarks.client_parts.replies import Said

ANSWER = "Done: the file says pear."
COMMAND = "cat fruit.txt"
SHELLS: Mapping[str, Mapping[str, Any]] = {
    "Bash": {"command": COMMAND, "description": "Show a file"},
    "bash": {"command": COMMAND, "description": "Show a file"},
    "shell": {"command": ["bash", "-lc", COMMAND]},
    "shell_command": {"command": COMMAND},
    "exec_command": {"cmd": COMMAND},
}
"""Tools that run a command, as the clients name them, and what to call each with."""
ERRAND = "Count to three, then say so."
HELPERS: Mapping[str, Mapping[str, Any]] = {
    "Agent": {"description": "Count", "prompt": ERRAND, "subagent_type": "general-purpose"},
    "task": {"description": "Count", "prompt": ERRAND, "subagent_type": "general"},
    "spawn_agent": {"message": ERRAND},
}
"""Tools that start a sub-agent."""
Script = Callable[[Mapping[str, Any], int], Said]
"""(body, number of the call) -> what to say."""


@dataclass(frozen=True)
class Heard:
    """A request as it came; ``t`` (s of time.monotonic). ``body`` is {} where there was none."""

    t: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


def offered(body: Mapping[str, Any]) -> dict[str, str]:
    """Tools that a request offers, in any dialect: name -> the group it is in, "" none (Codex has groups)."""
    found: dict[str, str] = {}
    for tool in body.get("tools") or ():
        inner = tool.get("function")
        name = str((inner if isinstance(inner, dict) else tool).get("name", tool.get("type", "")))
        within = tool.get("tools") or ()
        found |= {str(one.get("name")): name for one in within} if within else {name: ""}
    return found


def has_results(body: Mapping[str, Any]) -> bool:
    """Whether its history has the result of a tool, in any dialect."""
    marks = {"tool_result", "function_call_output", "custom_tool_call_output"}
    history = body.get("messages") or body.get("input") or ()
    for item in history if isinstance(history, list) else ():
        parts = item.get("content")
        if item.get("role") == "tool" or item.get("type") in marks:
            return True
        if isinstance(parts, list) and any(part.get("type") in marks for part in parts):
            return True
    return False


def one_tool(body: Mapping[str, Any], number: int) -> Said:
    """A shell command first, then the answer."""
    return _first(SHELLS, body, number)


def sub_agent(body: Mapping[str, Any], number: int) -> Said:
    """An errand for a sub-agent first, then the answer; the sub-agent answers at once."""
    if asks_for(body, ERRAND):
        return Said("One, two, three.", number=number)
    started = _started(body)
    if started:
        return Said("I wait.", "wait_agent", {"targets": [started]}, number, offered(body)["wait_agent"])
    return _first(HELPERS, body, number)


def _started(body: Mapping[str, Any]) -> str:
    """The sub-agent that Codex has just started, and has to wait for: the others wait without being told."""
    history = body.get("input")
    last = history[-1] if isinstance(history, list) and history else {}
    if last.get("type") != "function_call_output":
        return ""
    found = re.search(r'"agent_id": ?"([^"]+)"', str(last.get("output")))
    return found[1] if found else ""


def asks_for(body: Mapping[str, Any], text: str) -> bool:
    """Whether a user says this in it, without any tool call before."""
    return not has_results(body) and text in json.dumps(body.get("messages") or body.get("input") or "")


def _first(tools: Mapping[str, Mapping[str, Any]], body: Mapping[str, Any], number: int) -> Said:
    for name, group in offered(body).items():
        if name in tools and not has_results(body):
            return Said("I use a tool.", name, tools[name], number, group)
    return Said(ANSWER, number=number)


class ScriptedEngine:
    """``with`` it; ``url`` is there then, ``heard`` grows. Runs in a thread of its own.

    The first ``refuse_first`` calls that have a body get 503, and the first one that does not waits
    ``delay_first_s`` (s) for its answer.
    """

    def __init__(self, script: Script = one_tool, refuse_first: int = 0, delay_first_s: float = 0.0) -> None:
        self._refusals, self._delay = refuse_first, delay_first_s
        self.url = ""
        self.heard: list[Heard] = []
        self._script = script
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    def __enter__(self) -> ScriptedEngine:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/health", "/metrics"):
            return web.Response(text="")
        raw = await request.read()
        body = json.loads(raw) if raw else {}
        number = len(self.heard)
        headers = dict(request.headers.items())
        self.heard.append(Heard(time.monotonic(), request.method, request.path_qs, headers, body))
        if body and self._refusals:
            self._refusals -= 1
            error = {"type": "overloaded_error", "message": "not now"}
            return web.json_response(
                {"type": "error", "error": error}, status=503, headers={"Retry-After": "1"}
            )
        delay, self._delay = (self._delay, 0.0) if body else (0.0, self._delay)
        await asyncio.sleep(delay)
        return self._reply(request.path, body, number)

    def _reply(self, path: str, body: Mapping[str, Any], number: int) -> web.StreamResponse:
        model = str(body.get("model", "scripted"))
        if path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": len(json.dumps(body)) // 4})
        if path.endswith("/models"):
            entry = {"id": "scripted", "object": "model", "created": 1, "owned_by": "bench"}
            return web.json_response({"object": "list", "data": [entry]})
        streams = body.get("stream") is True
        said = self._script(body, number) if body else Said("")
        if path.endswith("/messages"):
            if streams:
                return _stream(replies.sse(replies.message_events(said, model), False))
            return web.json_response(replies.message(said, model))
        if path.endswith("/responses"):
            if streams:
                return _stream(replies.sse(replies.response_events(said, model), False))
            return web.json_response(replies.response(said, model))
        if path.endswith("/chat/completions"):
            if streams:
                wants = bool((body.get("stream_options") or {}).get("include_usage"))
                return _stream(replies.sse(replies.completion_events(said, model, wants), True))
            return web.json_response(replies.completion(said, model))
        return web.json_response({"error": {"message": f"{path}: not here", "code": 404}}, status=404)


def _stream(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="text/event-stream")
