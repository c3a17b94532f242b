"""An engine that is none, in a process of its own: what a router in front of it really sends.

    with FakeEngine("tiny-llama") as engine:
        ...  # engine.url; engine.log() -> calls since the last question: path, headers, body

It answers as vLLM does what routers ask (/health, /version, /v1/models, /metrics), and completions at once,
streamed or whole, with token ids. It takes bodies with and without a length.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiohttp import web


class Seen(NamedTuple):
    """A call as it came in; names of headers in lower case, ``body`` as text."""

    path: str
    headers: dict[str, str]
    body: str

    @property
    def fields(self) -> dict[str, Any]:
        """The body's JSON."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class FakeEngine:
    """The engine; ends with the ``with`` block, with ``stop``, or with the process that started it."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.url = ""

    def __enter__(self) -> Self:
        words = [sys.executable, str(Path(__file__)), "--model", self.model]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """It dies as an engine does that crashes; idempotent."""
        self._process.kill()
        self._process.wait(timeout=10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def log(self) -> list[Seen]:
        """The calls of programs since the last question."""
        with urllib.request.urlopen(f"{self.url}/log", timeout=10) as answer:
            return [Seen(*row) for row in json.load(answer)]


# -- the process -----------------------------------------------------------------------


def application(model: str) -> web.Application:
    """All that it answers."""
    log: list[Seen] = []

    async def completions(request: web.Request) -> web.StreamResponse:
        text = await request.text()
        log.append(Seen(request.path, {k.lower(): v for k, v in request.headers.items()}, text))
        body = json.loads(text)
        n = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        if not body.get("stream"):
            choice = {"index": 0, "text": "x" * n, "finish_reason": "length", "token_ids": list(range(n))}
            usage = {"prompt_tokens": len(body.get("prompt", "x")), "completion_tokens": n}
            return web.json_response(_reply(model, choice) | {"usage": usage})
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        for i in range(n):
            reason = "length" if i == n - 1 else None
            choice = {"index": 0, "text": "x", "finish_reason": reason, "token_ids": [i]}
            await answer.write(f"data: {json.dumps(_reply(model, choice))}\n\n".encode())
        await answer.write(b"data: [DONE]\n\n")
        return answer

    async def taken(_: web.Request) -> web.Response:
        rows = [list(seen) for seen in log]
        log.clear()
        return web.json_response(rows)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/completions", completions)
    app.router.add_post("/v1/chat/completions", completions)
    app.router.add_get("/log", taken)
    for path, text in _ANSWERS.items():
        app.router.add_get(path, _answer(text.replace("MODEL", model)))
    return app


_ANSWERS = {
    "/health": "",
    "/version": '{"version": "0.32.0"}',
    "/v1/models": '{"object": "list", "data": [{"id": "MODEL", "object": "model", "created": 1, '
    '"owned_by": "vllm", "root": "MODEL", "max_model_len": 4096}]}',
    "/metrics": 'vllm:num_requests_running{model_name="MODEL"} 0\n'
    'vllm:num_requests_waiting{model_name="MODEL"} 0\nvllm:kv_cache_usage_perc{model_name="MODEL"} 0\n',
}


def _answer(text: str) -> Any:
    async def handler(_: web.Request) -> web.Response:
        kind = "application/json" if text.startswith("{") else "text/plain"
        return web.Response(text=text, content_type=kind)

    return handler


def _reply(model: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "cmpl-fake", "object": "text_completion", "created": 1, "model": model, "choices": [choice]}


async def serve(model: str) -> None:
    """Print the port; go on until standard input ends."""
    runner = web.AppRunner(application(model))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()  # some routers try HTTP/2 first, which it refuses
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    asyncio.run(serve(parser.parse_args().model))
