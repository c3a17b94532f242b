"""One client of ``client.py`` in a process of its own: drives streams, prints what it took as a JSON line.

The file that it writes has, per call: name, when it was sent, when each chunk was received (time.monotonic).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from array import array
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

PROMPT = 64
"""Tokens."""
Row = tuple[str, float, "array[float]"]


def request(name: str, tokens: int) -> Any:
    """One call."""
    from bench.drivers.calls import Request

    return Request(name, range(PROMPT), tokens, {"program_id": name})


def row(name: str, reply: Any) -> Row:
    """What is kept of a reply."""
    return name, reply.t_send, array("d", [at for at, _ in reply.chunks])


async def closed_loop(given: argparse.Namespace, complete: Callable[[Any], Awaitable[Any]]) -> list[Row]:
    """``streams`` users, each with its next call as soon as the last one is over; they start evenly over
    the time of one call, or all at once."""
    rows: list[Row] = []
    began = time.monotonic()

    async def user(number: int) -> None:
        await asyncio.sleep(0.0 if given.together else number / given.streams * given.cycle)
        turn = 0
        while time.monotonic() - began < given.seconds:
            name = f"{number}.{turn}"
            rows.append(row(name, await complete(request(name, given.tokens))))
            turn += 1

    await asyncio.gather(*[user(i) for i in range(given.streams)])
    return rows


async def ours(given: argparse.Namespace, stack: AsyncExitStack) -> Callable[[Any], Awaitable[Any]]:
    """bench/drivers/stream.py."""
    from bench.drivers.stream import Streaming

    return (await stack.enter_async_context(Streaming(given.url, "golden"))).complete


async def over_aiohttp(given: argparse.Namespace, stack: AsyncExitStack) -> Callable[[Any], Awaitable[Any]]:
    """The same reading behind aiohttp: pieces stamped by a coroutine when it gets them."""
    import aiohttp
    import orjson

    from bench.drivers.calls import request_body
    from bench.drivers.stream import Reading

    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))

    async def complete(one: Any) -> Any:
        asked = request_body("golden", one) | {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"X-Request-Id": one.name, "Content-Type": "application/json"}
        sent = time.monotonic()
        url = f"{given.url}/v1/completions"
        async with session.post(url, data=orjson.dumps(asked), headers=headers) as answer:
            pieces = [(time.monotonic(), piece) async for piece in answer.content.iter_any()]
        reading = Reading(one, pieces, answer.status)
        for _ in reading.slices():
            await asyncio.sleep(0)
        return reading.response(sent)

    return complete


def in_greenlets(given: argparse.Namespace) -> list[Row]:
    """The client of the Locust driver (bench/drivers/locust/stream.py), one greenlet per user."""
    import gevent

    from bench.drivers.locust.stream import FreshClients, Streams

    streams, rows = Streams(FreshClients(600.0), given.url, "golden", 600.0), []
    began = time.monotonic()

    def user(number: int) -> None:
        gevent.sleep(0.0 if given.together else number / given.streams * given.cycle)
        turn = 0
        while time.monotonic() - began < given.seconds:
            name = f"{number}.{turn}"
            rows.append(row(name, streams.complete(request(name, given.tokens))))
            turn += 1

    gevent.joinall([gevent.spawn(user, i) for i in range(given.streams)], raise_error=True)
    return rows


async def in_loop(given: argparse.Namespace) -> dict[str, Any]:
    """One of the asyncio clients, watched as the driver watches itself."""
    from bench.drivers.audit import Audit, LoopWatch

    async with AsyncExitStack() as stack:
        complete = await (ours if given.client == "ours" else over_aiohttp)(given, stack)
        watch = await stack.enter_async_context(LoopWatch())
        cpu, began = time.process_time(), time.monotonic()
        rows = await closed_loop(given, complete)
        cpu, took = time.process_time() - cpu, time.monotonic() - began
        audit = Audit.of([], watch.lags, cpu / took, given.streams)
    return told(given, rows, cpu, took) | {"loop_lag_p99_ms": audit.loop_lag[1] * 1e3}


def told(given: argparse.Namespace, rows: list[Row], cpu: float, took: float) -> dict[str, Any]:
    """Figures of a run; its rows go to the file."""
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    Path(given.rows).write_text(json.dumps([(name, sent, list(at)) for name, sent, at in rows]))
    return {"cpu_s": cpu, "took_s": took, "chunks": sum(len(at) for _, _, at in rows), "rss_mb": rss}


async def open_loop(given: argparse.Namespace) -> dict[str, Any]:
    """The whole driver: programs of one call that arrive as a Poisson process, and its own audit."""
    from dataclasses import asdict

    from bench.drivers.live import drive_live
    from bench.drivers.stream import Streaming
    from bench.drivers.token_ids import TokenIds
    from workloads.arrivals import poisson
    from workloads.base import ProgramSpec

    async def program(session: Any) -> None:
        await session.call(PROMPT, output=given.tokens)

    n = round(given.rate * given.seconds)
    times = poisson(given.rate, n, 1)
    specs = [ProgramSpec(i, "golden", i, program) for i in range(n)]
    async with Streaming(given.url, "golden") as client:
        live = await drive_live(specs, times, client, TokenIds(1000, "golden"))
    audit = live.audit
    return {"audit": asdict(audit), "verdict": audit.verdict, "text": str(audit), "calls": len(live.calls)}


def main() -> None:
    """As a process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("client", choices=("ours", "aiohttp", "locust", "open"))
    parser.add_argument("url")
    parser.add_argument("rows")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--cycle", type=float, default=0.68)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--together", action="store_true")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.client == "locust":
        from gevent import monkey

        monkey.patch_all()
        cpu, began = time.process_time(), time.monotonic()
        rows = in_greenlets(given)
        print(json.dumps(told(given, rows, time.process_time() - cpu, time.monotonic() - began)))
        return
    from bench.drivers.loop import run

    print(json.dumps(run(open_loop(given) if given.client == "open" else in_loop(given))))


if __name__ == "__main__":
    main()
