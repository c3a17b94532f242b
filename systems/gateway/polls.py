"""Asks engines for /health and /metrics, each with a deadline, apart from each other and from all calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import aiohttp

from systems.gateway.load import load_of
from systems.gateway.options import GatewayOptions
from systems.gateway.workers import Worker, Workers

_LOG = logging.getLogger("gateway")
MOST_PAGE = 16 << 20
"""Bytes of an engine's page; a larger one is none."""


class PageTooLarge(Exception):
    """An engine's page that never ends, or nearly."""


class Polls:
    """``start`` it in a running loop, ``stop`` it before the loop ends."""

    def __init__(self, options: GatewayOptions, workers: Workers, now: Callable[[], float]) -> None:
        self._every = options.poll_s
        self._limit = aiohttp.ClientTimeout(total=options.poll_limit_s)
        self._workers = workers
        self._now = now
        self._session: aiohttp.ClientSession | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._said: set[tuple[int, str]] = set()

    async def start(self) -> None:
        """Begin to ask."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._limit)
        for worker in self._workers:
            self._tasks.append(asyncio.create_task(self._watch_health(worker)))
            self._tasks.append(asyncio.create_task(self._watch_load(worker)))

    async def stop(self) -> None:
        """Ask no more; idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _watch_health(self, worker: Worker) -> None:
        while True:
            worker.doubt.clear()
            await self._guarded(worker, self._health(worker))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):  # wait_for can swallow a cancellation (3.11)
                    await worker.doubt.wait()

    async def _guarded(self, worker: Worker, look: Awaitable[None]) -> None:
        """Whatever an engine answers, it is asked again; what nobody foresaw is said once, with its trace."""
        try:
            await look
        except Exception as error:
            mark = worker.id, type(error).__name__
            if mark not in self._said:
                self._said.add(mark)
                _LOG.exception("asking engine %d (%s)", worker.id, worker.url)

    async def _health(self, worker: Worker) -> None:
        try:
            status, _ = await self._get(worker, "/health")
        except TimeoutError:
            self._workers.silent(worker, f"no answer to /health within {self._limit.total:g} s")
        except (aiohttp.ClientError, OSError, PageTooLarge) as error:
            self._workers.down(worker, reason_of(error))
        else:
            if status < 500:
                self._workers.up(worker)
            else:
                self._workers.down(worker, f"/health answers {status}")

    async def _watch_load(self, worker: Worker) -> None:
        while True:
            await self._guarded(worker, self._load(worker))
            await asyncio.sleep(self._every)

    async def _load(self, worker: Worker) -> None:
        """An engine whose /metrics hangs or is none keeps the load it had; calls never wait for it."""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError, PageTooLarge):
            _, page = await self._get(worker, "/metrics")
            load = load_of(page)
            if load is not None:
                worker.load, worker.load_at = load, self._now()

    async def _get(self, worker: Worker, path: str) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("start it first")
        async with self._session.get(worker.url + path) as answer:
            found = bytearray()
            async for piece in answer.content.iter_any():
                found += piece
                if len(found) > MOST_PAGE:
                    raise PageTooLarge(f"{path} has more than {MOST_PAGE} bytes")
            return answer.status, bytes(found)


def reason_of(error: BaseException) -> str:
    """A network error in a few words."""
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    return text or type(error).__name__
