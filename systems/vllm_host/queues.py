"""The waiting calls of vLLM's scheduler. Imports nothing of vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import count
from typing import Any

Request = Any
"""vLLM's; ``priority`` is the order, (level, key, seq)."""
Entry = tuple[tuple[int, float, int], int, Request]
_SLACK = 2
"""Entries per call before those of calls that were taken out are swept out, too."""


class OrderedQueue:
    """In the place of vLLM's priority queue, with its interface (vllm.v1.core.sched.request_queue).

    Order is compared as tuples, not request by request in Python, and taking a
    call out costs no more than putting it in. A call's ``priority`` must not
    change while it is here.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._live: dict[Request, int] = {}  # the entry that counts
        self._entries = count()

    def __len__(self) -> int:
        return len(self._live)

    def __bool__(self) -> bool:
        return bool(self._live)

    def __contains__(self, request: Request) -> bool:
        return request in self._live

    def __iter__(self) -> Iterator[Request]:
        heap = self._heap[:]
        while heap:
            _, entry, request = heappop(heap)
            if self._live.get(request) == entry:
                yield request

    def add_request(self, request: Request) -> None:
        """Put a call in."""
        entry = self._live[request] = next(self._entries)
        heappush(self._heap, (request.priority, entry, request))
        if len(self._heap) > _SLACK * (1 + len(self._live)):
            self._heap = [e for e in self._heap if self._live.get(e[2]) == e[1]]
            heapify(self._heap)

    def prepend_request(self, request: Request) -> None:
        """Put a call in: there is no front but the order's."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put calls in."""
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> Request:
        """The first in order. Raises IndexError if there is none."""
        heap = self._heap
        while self._live.get(heap[0][2]) != heap[0][1]:
            heappop(heap)
        return heap[0][2]

    def pop_request(self) -> Request:
        """Take the first out. Raises IndexError if there is none."""
        request = self.peek_request()
        heappop(self._heap)
        del self._live[request]
        return request

    def remove_request(self, request: Request) -> None:
        """Take a call out. Raises KeyError if it is not here."""
        del self._live[request]

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Take those out that are here."""
        for request in requests:
            self._live.pop(request, None)


class Queues:
    """All queues in which a vLLM version keeps calls that wait, as one in order.

    0.28 has ``waiting`` and ``skipped_waiting`` (blocked, or a token still in flight) and takes the better
    head; 0.31 and 0.32 have all in ``waiting`` but those that hold KV of a transfer. ``scheduler`` is a V1
    scheduler without calls: its queues are replaced.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._waiting = scheduler.waiting = OrderedQueue()
        self._skipped: OrderedQueue | None = None
        if hasattr(scheduler, "skipped_waiting"):
            self._skipped = scheduler.skipped_waiting = OrderedQueue()

    def __iter__(self) -> Iterator[Request]:
        if self._skipped:
            return merge(self._waiting, self._skipped)
        return iter(self._waiting)

    def first(self) -> Request | None:
        """The best one, None if nobody waits."""
        best = self._waiting.peek_request() if self._waiting else None
        if self._skipped:
            other = self._skipped.peek_request()
            return other if best is None or other.priority < best.priority else best
        return best

    def remove(self, requests: Iterable[Request]) -> None:
        """Take waiting calls out."""
        for request in requests:
            self._waiting.remove_requests((request,))
            if self._skipped is not None:
                self._skipped.remove_requests((request,))

    def add(self, request: Request) -> None:
        """Put a call that waits back, in its new order."""
        self._scheduler._enqueue_waiting_request(request)
