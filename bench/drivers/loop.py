"""The event loop of everything that drives load: uvloop where it is installed, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """As ``asyncio.run``."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    found: Result = uvloop.run(main)
    return found


async def sleep_until(at: float) -> None:
    """Until ``time.monotonic()`` is ``at``: never early, as uvloop's timers of whole milliseconds can be."""
    while (left := at - time.monotonic()) > 0.0:
        await asyncio.sleep(math.ceil(left * 1e3) / 1e3)
