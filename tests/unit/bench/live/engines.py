"""An engine that is none: answers /v1/completions step by step and logs calls and steps as our class does.

It runs in a thread with a loop of its own. A step takes ``step_s``; calls are admitted in order of arrival,
at most ``slots`` at a time; a step computes the whole prompt of those that are new, a token of the others.
A prompt's prefix that an earlier call of the same salt had (in whole blocks of 32 tokens) is a cache hit.
"""

import asyncio
import json
import tempfile
import threading
import time

from aiohttp import web

from systems.engines.vllm_virtual import EngineUnavailable
from systems.vllm_host.control import Channel
from vocabulary import on_grid

BLOCK = 32
_COUNTS = ("reprefill_tokens", "preemptions", "demotions", "promotions", "level")
_SPLIT = ("prefill_s", "reprefill_s", "decode_s", "swap_s", "wait_s")


class Asked:
    """A call that is here."""

    def __init__(self, number, name, body, now):
        self.number, self.name, self.body = number, name, body
        self.arrive, self.first_sched, self.first_token = now, None, None
        self.done, self.cached, self.prefill_s, self.decode_s, self.steps = 0, 0, 0.0, 0.0, 0
        self.tokens = asyncio.Queue()

    def row(self, end, aborted):
        own = {"prefill_s": self.prefill_s, "decode_s": self.decode_s}
        times = {"t_arrive": self.arrive, "t_first_sched": self.first_sched,
                 "t_first_token": self.first_token, "t_end": end}  # fmt: skip
        return {
            "request_id": f"cmpl-{self.name}-0-0123abcd", "program": 0, "thread": "", "index": 0, "engine": 0,
            **dict.fromkeys(_COUNTS, 0), **dict.fromkeys(_SPLIT, 0.0), **times, **own,
            "output_tokens": self.done, "cached_tokens": self.cached, "steps": self.steps,
            "prefill_tokens": len(self.body["prompt"]) - self.cached if self.steps else 0,
            "wait_s": end - self.arrive - sum(own.values()), "served": float(self.steps),
            "aborted": aborted, "waits": [],
        }  # fmt: skip


class FakeEngine:
    """A LiveEngine (systems/provision/engine.py). ``answers``: calls until it dies; None: it does not.

    ``controlled``: it has a control socket; ``told`` is what came there.
    """

    def __init__(self, folder, *, slots=2, step_s=0.002, logs=True, answers=None, controlled=False):
        self.told, self._channel = [], None
        self._sockets = tempfile.TemporaryDirectory() if controlled else None  # a path of few bytes
        self.control = f"{self._sockets.name}/control.sock" if controlled else None
        self.name, self.folder, self.url = folder.name, folder, ""
        self.calls = folder / "calls.jsonl" if logs else None
        self.steps = folder / "steps.jsonl" if logs else None
        self.slots, self.step_s, self.answers = slots, step_s, answers
        self.flushed = self.begun = 0
        self.flushes = True
        self.bodies, self.said = [], []
        self.dead = ""

    # LiveEngine

    def begin(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.begun += 1
        self.dead = ""
        if self.control:
            self._channel = Channel(self.control)
        for log in filter(None, (self.calls, self.steps)):
            log.unlink(missing_ok=True)
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._up.wait(10)

    def ready(self, limit_s=10.0):
        pass

    def check(self):
        if self.dead:
            raise EngineUnavailable(f"{self.name}: it ended; its last words: {self.dead}")

    def words(self):
        return self.dead

    def facts(self):
        return {"kind": "fake", "command": ["fake", self.name]}

    def stop(self):
        if getattr(self, "_loop", None) is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(10)
            self._loop = None
        if self._channel is not None:
            self._hear()
            self._channel.close()

    def _hear(self):
        if self._channel is not None:
            self._channel.serve(self._take)

    def _take(self, message):
        """Five more pinned each time that somebody asks."""
        self.told.append(dict(message))
        return {"pinned": 5 * sum(one["op"] == "stats" for one in self.told)}

    # Inside the thread

    def now(self):
        return on_grid(time.monotonic() - self.origin)

    async def _serve(self):
        self._loop, self._over, self.origin = asyncio.get_running_loop(), asyncio.Event(), time.monotonic()
        self._waiting, self._running, self._seen, self._count = [], [], set(), 0
        if self.steps:
            head = {"origin_monotonic": self.origin, "vllm": "0.0", "scheduler": "fcfs"}
            sizes = {"kv_blocks": 128, "block_size": BLOCK, "max_model_len": 4096}
            self._write(self.steps, head | sizes)
        app = web.Application()
        app.add_routes([
            web.get("/health", self._empty), web.get("/metrics", self._empty),
            web.get("/version", self._version),
            web.get("/v1/models", self._models),
            web.post("/v1/completions", self._complete), web.post("/reset_prefix_cache", self._flush),
            *self._more_routes(),
        ])  # fmt: skip
        runner = web.AppRunner(app, shutdown_timeout=0.2, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        stepping = asyncio.create_task(self._steps_on())
        self._up.set()
        await self._over.wait()
        stepping.cancel()
        await runner.cleanup()

    def _more_routes(self):
        """Of other APIs (``tests.unit.bench.agents.engines``)."""
        return []

    def _write(self, path, line):
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    async def _empty(self, request):
        return web.Response(text="")

    async def _version(self, request):
        return web.json_response({"version": "0.0"})

    async def _models(self, request):
        return web.json_response({"object": "list", "data": [{"id": "tiny-llama", "object": "model"}]})

    async def _flush(self, request):
        self.flushed += 1
        self._seen.clear()
        return web.Response(status=200 if self.flushes else 404)

    async def _complete(self, request):
        if self.answers is not None and len(self.bodies) >= self.answers:
            self.dead = "Killed"
            request.transport.abort()
            raise web.HTTPServiceUnavailable
        body = await request.json()
        self.bodies.append(body)
        self._count += 1
        call = Asked(self._count, request.headers.get("X-Request-Id", f"x{self._count}"), body, self.now())
        self._waiting.append(call)
        try:
            return await (self._stream if body.get("stream") else self._whole)(request, call)
        except asyncio.CancelledError:
            self._leave(call, aborted=True)
            raise

    async def _whole(self, request, call):
        ids = [await call.tokens.get() for _ in range(call.body["max_tokens"])]
        return web.json_response(
            {"choices": [{"token_ids": ids, "finish_reason": "length"}], "usage": _usage(call)}
        )

    async def _stream(self, request, call):
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        n = call.body["max_tokens"]
        for i in range(n):
            choice = {"index": 0, "text": "", "token_ids": [await call.tokens.get()],
                      "finish_reason": "length" if i == n - 1 else None}  # fmt: skip
            await answer.write(f"data: {json.dumps({**_id(call), 'choices': [choice]})}\n\n".encode())
        await answer.write(
            f"data: {json.dumps({**_id(call), 'choices': [], 'usage': _usage(call)})}\n\n".encode()
            + b"data: [DONE]\n\n"
        )
        return answer

    # Steps

    async def _steps_on(self):
        while True:
            self._hear()
            while self._waiting and len(self._running) < self.slots:
                call = self._waiting.pop(0)
                call.first_sched, call.cached = self.now(), self._hits(call)
                self._running.append(call)
            if not self._running:
                await asyncio.sleep(0.0005)
                continue
            start = self.now()
            batch = list(self._running)
            await asyncio.sleep(self.step_s)
            self._end_step(start, batch)

    def _hits(self, call):
        prompt, salt = tuple(call.body["prompt"]), call.body.get("cache_salt", "")
        blocks = range(BLOCK, len(prompt), BLOCK)
        return max((n for n in blocks if (salt, prompt[:n]) in self._seen), default=0)

    def _end_step(self, start, batch):
        end, part = self.now(), []
        for call in batch:
            if call not in self._running:
                continue
            prompt = len(call.body["prompt"])
            fresh = call.steps == 0
            computed = call.cached if fresh else prompt + call.done - 1
            part.append([f"cmpl-{call.name}-0-0123abcd", computed, prompt - computed if fresh else 1, 1])
            call.steps, call.done = call.steps + 1, call.done + 1
            if fresh:
                call.first_token, call.prefill_s = end, end - call.first_sched
                for n in range(BLOCK, prompt + 1, BLOCK):
                    self._seen.add((call.body.get("cache_salt", ""), tuple(call.body["prompt"][:n])))
            else:
                call.decode_s = end - call.first_token
        if self.steps and part:
            load = {"running": len(part), "waiting": len(self._waiting), "kv_used": 2 * len(part)}
            line = {"start": start, "end": end, **load, "evicted": 0, "calls": part, "preempted": []}
            self._write(self.steps, line)
        for call in batch:
            if call in self._running:
                call.tokens.put_nowait((call.number * 7 + call.done) % 1000)
                if call.done == call.body["max_tokens"]:
                    self._leave(call, aborted=False, end=end)

    def _leave(self, call, aborted, end=None):
        for place in (self._running, self._waiting):
            if call in place:
                place.remove(call)
                if self.calls:
                    self._write(self.calls, call.row(self.now() if end is None else end, aborted))


def _id(call):
    return {"id": f"cmpl-{call.name}"}


def _usage(call):
    return {"prompt_tokens": len(call.body["prompt"]), "completion_tokens": call.body["max_tokens"]}
