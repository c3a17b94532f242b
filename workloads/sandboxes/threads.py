"""Work that would block the event loop, each in a thread of its own.

Not in asyncio's pool: that has few threads, and a command that hangs in one would hold up the next. A daemon
thread does not keep a process from ending, either.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """``work(*args)``. Cancelled, it is no longer awaited, but goes on to its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = work(*args)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, daemon=True).start()
    return await done
