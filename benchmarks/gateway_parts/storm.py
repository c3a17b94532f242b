"""Clients for the gateway's fault script: agents that call, fork, drop, retry and forget, from a seed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from benchmarks.gateway_parts.streams import text_of

ENDINGS = ("whole", "error", "refused", "cut", "silent", "dropped", "unreachable")
"""Of a call, as its client saw it: all of it came; the stream ended with an error event; another status
than 200; the connection broke off; **the stream ended like a good one, but was not whole**; we hung up;
nobody listened."""
LIMIT_S = 60.0
MOST_TOKENS = 12


class Ask(NamedTuple):
    """One call. ``drop_after``: hang up after so many tokens (0: while it waits); None: never."""

    program: str
    thread: str = ""
    tokens: int = 8
    stream: bool = True
    size: int = 400
    drop_after: int | None = None
    key: str = ""


Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Reply(NamedTuple):
    """How it ended; ``status`` 0 where there was none."""

    ending: str
    status: int = 0
    tokens: int = 0
    text: str = ""


def request_of(ask: Ask, model: str, *, keeps: bool = False) -> bytes:
    """The bytes of a call; ``keeps``: another one may follow on its connection."""
    body = {
        "model": model, "prompt": text_of(ask.size, len(ask.program)), "max_tokens": ask.tokens,
        "min_tokens": ask.tokens, "ignore_eos": True, "stream": ask.stream,
    }  # fmt: skip
    if ask.program:
        body["vllm_xargs"] = {"program_id": ask.program, "thread_id": ask.thread}
    data = orjson.dumps(body)
    key = f"X-Request-Id: {ask.key}\r\n" if ask.key else ""
    last = "" if keeps else "Connection: close\r\n"
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n{key}"
        f"Content-Length: {len(data)}\r\n{last}\r\n"
    ).encode() + data


async def ask_for(port: int, ask: Ask, model: str = "fake", kept: list[Wire] | None = None) -> Reply:
    """Make one call; what went wrong is in the reply. TimeoutError after LIMIT_S.

    ``kept``: connections that an earlier call has left open; one of them is used, and goes back.
    """
    try:
        wire = kept.pop() if kept else await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        return Reply("unreachable", text=str(error))
    reply = Reply("cut")
    again = False
    try:
        async with asyncio.timeout(LIMIT_S):
            reply, again = await _ask_on(wire, ask, model, keeps=kept is not None)
    except (OSError, asyncio.IncompleteReadError) as error:
        reply = Reply("cut", text=repr(error))
    finally:
        if again and kept is not None:
            kept.append(wire)
        else:
            wire[1].transport.abort()
    return reply


async def _ask_on(wire: Wire, ask: Ask, model: str, *, keeps: bool) -> tuple[Reply, bool]:
    """The reply, and whether another call may follow on the connection."""
    read, write = wire
    write.write(request_of(ask, model, keeps=keeps))
    if ask.drop_after == 0:
        await asyncio.sleep(0.02)
        return Reply("dropped"), False
    head = await read.readuntil(b"\r\n\r\n")
    reply = await _read(read, ask, head)
    return reply, keeps and reply.ending != "dropped" and b"\r\nconnection: close" not in head.lower()


async def _read(read: asyncio.StreamReader, ask: Ask, head: bytes) -> Reply:
    status = int(head.split(b" ", 2)[1])
    if b"chunked" not in head.lower():
        return _whole(status, await read.readexactly(_length(head)))
    body = bytearray()
    while True:
        length = int((await read.readuntil(b"\n")).partition(b";")[0], 16)
        body += (await read.readexactly(length + 2))[:-2]
        tokens = body.count(b'"choices":[{')
        if not length:
            return _ended(status, bytes(body), tokens)
        if ask.drop_after is not None and tokens >= ask.drop_after:
            return Reply("dropped", status, tokens)


def _ended(status: int, body: bytes, tokens: int) -> Reply:
    text = body[-300:].decode(errors="replace")
    if status != 200:
        return Reply("refused", status, text=text)
    if b"data: [DONE]" in body:
        return Reply("whole", status, tokens)
    if b'"error"' in body or body.startswith(b"{"):
        return Reply("error" if b'"error"' in body else "whole", status, tokens, text)
    return Reply("silent", status, tokens, text)


def _whole(status: int, body: bytes) -> Reply:
    text = body[-300:].decode(errors="replace")
    return Reply("whole", status, text=text) if status == 200 else Reply("refused", status, text=text)


def _length(head: bytes) -> int:
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


async def say(port: int, what: str, program: str) -> int:
    """POST /programs/start or /programs/end; the status, 0 if nobody answers."""
    body = orjson.dumps({"program_id": program})
    head = f"POST /programs/{what} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
    try:
        async with asyncio.timeout(LIMIT_S):
            read, write = await asyncio.open_connection("127.0.0.1", port)
            try:
                write.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                return int((await read.readline()).split(b" ", 2)[1])
            finally:
                write.transport.abort()
    except (OSError, IndexError):
        return 0


@dataclass
class Storm:
    """Agents that go on until ``stop`` is set; those of odd numbers keep their connections for the next call.
    ``endings`` counts calls, ``statuses`` those refused; ``reused``: calls on a connection that had one
    before; ``odd`` keeps the text of what should not happen; ``open_programs``: nobody ended them."""

    port: int
    seed: int
    model: str = "fake"
    tokens: int = MOST_TOKENS
    stop: bool = False
    calls: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    open_programs: set[str] = field(default_factory=set)
    reused: int = 0

    async def agent(self, number: int) -> None:
        """Programs one after the other: each a few calls, some forked, some dropped, some never ended."""
        draw = random.Random(f"{self.seed}/{number}")
        kept: list[Wire] | None = [] if number % 2 else None
        try:
            await self._go(draw, number, kept)
        finally:
            for _, write in kept or ():
                write.transport.abort()

    async def _go(self, draw: random.Random, number: int, kept: list[Wire] | None) -> None:
        turn = 0
        while not self.stop:
            program = "" if draw.random() < 0.15 else f"s{self.seed}-a{number}-{turn}"
            turn += 1
            if program:
                self.open_programs.add(program)
            for index in range(draw.randint(1, 3)):
                await self._turn(draw, program, index, kept)
                await asyncio.sleep(draw.uniform(0.0, 0.02))
            if program and draw.random() < 0.7:
                await say(self.port, "end", program)
                self.open_programs.discard(program)

    async def end_all(self) -> None:
        """End what agents forgot."""
        for program in sorted(self.open_programs):
            await say(self.port, "end", program)
        self.open_programs.clear()

    async def _turn(
        self, draw: random.Random, program: str, index: int, kept: list[Wire] | None = None
    ) -> None:
        asks = [self._ask(draw, program, f"{index}.{branch}") for branch in range(1 + (draw.random() < 0.2))]
        replies = await asyncio.gather(*(self.one(ask, kept) for ask in asks))
        for ask, reply in zip(asks, replies, strict=True):
            if reply.ending == "dropped" and draw.random() < 0.5:  # the client comes back with the same turn
                await self.one(ask._replace(drop_after=None), kept)

    def _ask(self, draw: random.Random, program: str, thread: str) -> Ask:
        tokens = draw.randint(1, self.tokens)
        drop = draw.randint(0, tokens) if draw.random() < 0.25 else None
        key = f"{program}-{thread}-{draw.random()}" if draw.random() < 0.5 else ""
        stream = drop is not None or draw.random() < 0.8
        return Ask(program, thread, tokens, stream, draw.choice((200, 2_000)), drop, key)

    async def one(self, ask: Ask, kept: list[Wire] | None = None) -> Reply:
        """One call, counted; ``kept``: see ``ask_for``."""
        self.calls += 1
        self.reused += bool(kept)
        try:
            reply = await ask_for(self.port, ask, self.model, kept)
        except TimeoutError:
            reply = Reply("silent", text=f"no end within {LIMIT_S:g} s")
        self.endings[reply.ending] += 1
        if reply.ending == "refused":
            self.statuses[reply.status] += 1
        if reply.ending in ("cut", "silent", "unreachable") or reply.status in (400, 401, 404, 413, 500):
            self.odd.append(f"{reply.ending} {reply.status}: {reply.text[-200:]}")
        return reply


async def until(what: Callable[[], object], limit_s: float, every_s: float = 0.1) -> bool:
    """Whether ``what`` came true within ``limit_s``; it is asked in a thread, since it may block."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while True:
        with contextlib.suppress(OSError):
            if await asyncio.to_thread(what):
                return True
        if loop.time() > deadline:
            return False
        await asyncio.sleep(every_s)
