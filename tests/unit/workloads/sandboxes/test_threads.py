import asyncio
import threading
import time

import pytest

from workloads.sandboxes.threads import in_thread


def test_each_has_a_thread_of_its_own():
    """A hundred that wait for each other: a pool of fewer threads would hang."""
    gate = threading.Barrier(100, timeout=20)

    async def work():
        return await asyncio.gather(*(in_thread(gate.wait) for _ in range(100)))

    assert sorted(asyncio.run(work())) == list(range(100))


def test_what_it_raises_is_raised():
    async def work():
        await in_thread(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(work())


def test_one_that_hangs_does_not_keep_us():
    held, began = threading.Event(), time.monotonic()

    async def work():
        async with asyncio.timeout(0.05):
            await in_thread(held.wait, 20)

    with pytest.raises(TimeoutError):
        asyncio.run(work())
    assert time.monotonic() - began < 10
    held.set()
