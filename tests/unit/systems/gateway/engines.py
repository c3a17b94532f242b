"""Engines that do what a test says, a gateway in front of them, and what must be left when all is over."""

import asyncio
import contextlib
import functools
import inspect
import json
import re

import aiohttp

from systems.gateway.gateway import Gateway
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.server import Server

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}
PAGE = 'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} 0\n'


class Call:
    """A request that came to an engine."""

    def __init__(self, engine, head, body, writer):
        line, *fields = head.decode().split("\r\n")
        self.engine, self.writer = engine, writer
        self.method, self.path, _ = line.split(" ", 2)
        self.headers = {n.lower(): v for n, _, v in (field.partition(": ") for field in fields)}
        self.raw = body
        self.body = json.loads(body) if body else {}
        self.left = asyncio.Event()

    @property
    def xargs(self):
        return self.body.get("vllm_xargs", {})

    def reply(self, data=None, status=200, headers=""):
        data = {"id": "x", "usage": USAGE} if data is None else data
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\n{headers}"
        self.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def begin(self):
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self.writer.write(head.encode())

    def chunk(self, text):
        data = text.encode()
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def token(self, word="a"):
        self.chunk(f'data: {{"choices":[{{"text":"{word}"}}]}}\n\n')

    def end(self, usage=USAGE):
        if usage and self.body.get("stream_options", {}).get("include_usage"):
            self.chunk(f'data: {{"choices":[],"usage":{json.dumps(usage)}}}\n\n')
        self.chunk("data: [DONE]\n\n")
        self.writer.write(b"0\r\n\r\n")

    def die(self):
        self.writer.transport.abort()

    async def stream(self, tokens=5, gap=0.0):
        self.begin()
        for number in range(tokens):
            self.token(str(number))
            await asyncio.sleep(gap)
        self.end()


async def whole(call):
    call.reply()


async def streaming(call):
    await call.stream()


async def either(call):
    if call.body.get("stream"):
        await call.stream()
    else:
        call.reply()


class Engine:
    """``script(call)`` answers calls; ``health``: status of /health, None: no answer; so ``metrics``."""

    def __init__(self, script=either):
        self.script, self.health, self.metrics = script, 200, PAGE
        self.calls, self.open, self.port = [], set(), 0
        self._server, self._tasks = None, set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def start(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self):
        """As a crash: whoever is connected is cut off."""
        if self._server is not None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._server = None

    async def _connected(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                found = _LENGTH.search(head)
                body = await reader.readexactly(int(found[1])) if found else b""
                await self._answer(Call(self, head, body, writer), reader)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _answer(self, call, reader):
        if call.path == "/health":
            await self._maybe(call, self.health, b"")
        elif call.path == "/metrics":
            page = None if self.metrics is None else self.metrics.format(running=len(self.open)).encode()
            await self._maybe(call, None if page is None else 200, page)
        else:
            self.calls.append(call)
            self.open.add(call)
            watch = asyncio.create_task(self._watch(call, reader))
            try:
                await self.script(call)
                await call.writer.drain()
            finally:
                watch.cancel()
                self.open.discard(call)

    async def _maybe(self, call, status, body):
        if status is None:
            await asyncio.sleep(60)
        call.reply(body, status)

    async def _watch(self, call, reader):
        while not reader.at_eof() and not call.writer.transport.is_closing():
            await asyncio.sleep(0.005)
        call.left.set()


class Watch:
    """An observer that keeps everything."""

    def __init__(self):
        self.told, self.passages, self.gate_events, self.kept_events = [], [], [], []

    def arrived(self, call):
        self.told.append(("arrived", call.seq))

    def held(self, call):
        self.told.append(("held", call.seq))

    def sent(self, call):
        self.told.append(("sent", call.seq))

    def first(self, call):
        self.told.append(("first", call.seq))

    def left(self, call):
        self.told.append(("left", call.seq))
        self.passages.append(call)

    def started(self, program, name, now):
        self.told.append(("started", name))

    def ended(self, program, name, why, now):
        self.told.append(("ended", name, why))

    def engine(self, engine, what, reason, now):
        self.told.append(("engine", engine, what))

    def gate(self, event, name):
        self.gate_events.append((event, name))

    def kept(self, event, name):
        self.kept_events.append((event, name))


class World:
    """A gateway, its engines and a client; ``post`` and ``get`` answer (status, headers, body)."""

    def __init__(self, gateway, server, session, engines, watch):
        self.gateway, self.server, self.session = gateway, server, session
        self.engines, self.watch = engines, watch

    async def post(self, path, body, headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.server.url + path, data=data, headers=headers or {}) as answer:
            return answer.status, answer.headers, await answer.read()

    async def get(self, path, headers=None):
        async with self.session.get(self.server.url + path, headers=headers or {}) as answer:
            return answer.status, answer.headers, await answer.read()

    def ask(self, path="/v1/completions", headers=None, **fields):
        return asyncio.create_task(self.post(path, {"model": "m", "prompt": "hello", **fields}, headers))

    @property
    def last(self):
        return self.watch.passages[-1]

    def nothing_left(self):
        gateway = self.gateway
        assert (gateway.in_flight, len(gateway.door), len(gateway.rows), gateway.wires.busy) == (0, 0, 0, 0)
        assert [worker.calls for worker in gateway.workers] == [0] * len(gateway.workers)
        counts = gateway.programs.counts()
        assert (counts["reasoning"], counts["held"]) == (0, 0)
        assert len(gateway.programs.table) == len(gateway.programs)
        for word in ("arrived", "left"):
            assert sorted({one[1] for one in self.watch.told if one[0] == word}) == sorted(
                one[1] for one in self.watch.told if one[0] == word
            )
        assert {one[1] for one in self.watch.told if one[0] == "arrived"} == {
            one[1] for one in self.watch.told if one[0] == "left"
        }

    def in_step(self):
        """Programs that are said to reason have calls at engines, and the engines have just these calls."""
        gateway = self.gateway
        calling = [program for program in gateway.programs if program.calls]
        assert gateway.programs.counts()["reasoning"] == len(calling)
        assert sum(p.calls for p in calling) == sum(worker.calls for worker in gateway.workers)


async def until(condition, limit_s=3.0):
    """Wait for something that is to come true very soon."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def world(*engines, targets=None, up=True, leaves=True, **options):
    """``up``: wait until every engine is. ``leaves``: nothing may be left at the end."""
    for engine in engines:
        await engine.start()
    before = asyncio.all_tasks()
    chosen = {"poll_s": 0.05, "poll_limit_s": 0.3, "system": "plas"} | options
    targets = targets(engines) if targets else tuple(Target(engine.url) for engine in engines)
    gateway, watch = Gateway(GatewayOptions(targets, **chosen)), Watch()
    gateway.observers.append(watch)
    async with Server(gateway) as server, aiohttp.ClientSession() as session:
        if up:
            await until(lambda: all(worker.alive for worker in gateway.workers))
        yield World(gateway, server, session, engines, watch)
        if leaves:
            await until(lambda: not gateway.in_flight)
    one = World(gateway, server, session, engines, watch)
    one.nothing_left()
    assert len(gateway.programs) == 0
    for engine in engines:
        await engine.stop()
    await until(lambda: asyncio.all_tasks() <= before, 1.0)


def on_loop(test):
    """A test that is a coroutine function, on a loop of its own, at most 20 s."""

    @functools.wraps(test)
    def wrapped(*args, **fixtures):
        async def bounded():
            async with asyncio.timeout(20):
                await test(*args, **fixtures)

        asyncio.run(bounded())

    wrapped.__signature__ = inspect.signature(test)
    return wrapped
