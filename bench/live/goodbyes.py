"""Tells what stands before the engines, while a run goes on, which programs are over or in a tool."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from systems.fronts.protocol import Front
from systems.http1 import Connections, HttpFailed

PATIENCE_S = 10.0


class Goodbyes:
    """Use as ``async with``; the end of the block waits for all that were said. Those that fail are counted:
    the gateway then forgets the program when its lease ends, or keeps nothing for it. ``front``: a third
    party's, None: our gateway.
    """

    def __init__(self, url: str, front: Front | None = None) -> None:
        self._server = Connections.at(url)
        self._front = front
        self._tasks: set[asyncio.Task[None]] = set()
        self.failed = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.close()

    def say(self, program: str) -> None:
        """A program is over."""
        path = "/programs/end" if self._front is None else self._front.end(program)
        if path is not None:
            self._send(path, {"program_id": program})

    def away(self, program: str, thread: str, after: int, tool: str) -> None:
        """A thread of a program goes into a tool, after its call of that index: our gateway asks its
        retention policy."""
        caller = {"program_id": program, "thread_id": thread}
        self._send("/programs/away", {**caller, "after": after, "tool": tool})

    def _send(self, path: str, message: Mapping[str, str | int]) -> None:
        task = asyncio.create_task(self._say(path, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _say(self, path: str, message: Mapping[str, str | int]) -> None:
        body = json.dumps(message).encode()
        headers = {"Content-Type": "application/json"}
        status = 0
        with contextlib.suppress(HttpFailed, TimeoutError):
            async with (
                asyncio.timeout(PATIENCE_S),
                await self._server.request("POST", path, headers, body) as reply,
            ):
                await reply.wait()
                status = reply.status
        self.failed += status != 200
