"""Agents that block: they run in a thread, and what they ask for happens in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from workloads.agents.contract import AgentError
from workloads.sandboxes.threads import in_thread

T = TypeVar("T")


class Door:
    """How a thread gets something done in the loop. ``close``: whoever asks from then on is refused, and so
    is who waits already."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: set[Any] = set()
        self._open = True

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, from a thread that is not the loop's. Raises AgentError if the door is closed."""
        with self._lock:
            if not self._open:
                coroutine.close()
                raise AgentError("the program was ended")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._waiting.add(future)
        try:
            return future.result()
        except CancelledError:
            raise AgentError("the program was ended") from None
        finally:
            with self._lock:
                self._waiting.discard(future)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._open = False
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()


async def behind_door(function: Callable[[Door], T]) -> T:
    """What ``function`` returns or raises; it runs in a thread of its own (``workloads.sandboxes.threads``).

    A thread cannot be ended from outside: if this is cancelled, the door is closed and the thread left to run
    into it.
    """
    door = Door(asyncio.get_running_loop())
    try:
        return await in_thread(_call, function, door)
    finally:
        door.close()


def _call(function: Callable[[Door], T], door: Door) -> T:
    """SystemExit of a guest must not pass for a result, and no future can hold StopIteration."""
    try:
        return function(door)
    except BaseException as raised:
        if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
            raise
        raise AgentError(f"it left: {raised!r}") from None
