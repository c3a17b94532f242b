"""vLLM's waiting calls as one queue in order, whichever queues a version keeps them in.

0.28 has ``waiting`` and ``skipped_waiting`` (blocked, or a token still in flight) and takes the better head;
0.31 and 0.32 have all in ``waiting`` but for those that hold KV of a transfer. Imports nothing of vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Any

Request = Any


class Queues:
    """Those of ``scheduler``, a vLLM V1 scheduler, with the interface ``plan.Waiting``."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._two = hasattr(scheduler, "skipped_waiting")

    def __len__(self) -> int:
        skipped = len(self._scheduler.skipped_waiting) if self._two else 0
        return len(self._scheduler.waiting) + skipped

    def __iter__(self) -> Iterator[Request]:
        if self._two and self._scheduler.skipped_waiting:
            return merge(self._scheduler.waiting, self._scheduler.skipped_waiting)
        return iter(self._scheduler.waiting)

    def first(self) -> Request | None:
        """The best one, None if nobody waits."""
        waiting = self._scheduler.waiting
        best = waiting.peek_request() if waiting else None
        if self._two and (skipped := self._scheduler.skipped_waiting):
            other = skipped.peek_request()
            return other if best is None or other < best else best
        return best

    def remove(self, requests: set[Request]) -> None:
        """Take waiting calls out; their order has not changed yet."""
        self._scheduler.waiting.remove_requests(requests)
        if self._two:
            self._scheduler.skipped_waiting.remove_requests(requests)

    def add(self, request: Request) -> None:
        """Put a call that waits back, in its new order."""
        self._scheduler._enqueue_waiting_request(request)
