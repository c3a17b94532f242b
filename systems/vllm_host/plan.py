"""Who runs in the next step: displacement before vLLM schedules (docs/engine.md), and hold (docs/vllm.md).

Imports nothing of vLLM. Room is counted in slots, KV blocks and tokens of one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from vocabulary import BLOCK

Request = Any
"""vLLM's: request_id, priority (the order), num_tokens, num_computed_tokens, is_prefill_chunk."""
Order = tuple[int, float, int]


class Queues(Protocol):
    """The waiting calls in order; an iterator over them is not disturbed by what is added meanwhile."""

    def __iter__(self) -> Iterator[Request]: ...


class Guard(Protocol):
    """What retention says of waiting calls (systems.vllm_host.retention.Retained)."""

    @property
    def firm(self) -> bool:
        """Whether it says anything."""

    def barred(self, request: Request, promised: int) -> bool:
        """Whether what is kept stops it; ``promised``: blocks, not kept, that others will take."""

    def lacking(self, request: Request) -> int:
        """Its blocks that it shares neither with calls nor with what is kept."""


class Host(Protocol):
    """What a plan asks of and does to ``systems.vllm_host.scheduler.PolicyMixin``."""

    running: list[Request]
    queues: Queues
    held: dict[str, Request]
    max_num_running_reqs: int
    max_num_scheduled_tokens: int

    @property
    def retained(self) -> Guard | None:
        """Where KV is kept."""

    def free_blocks(self) -> int:
        """Blocks nobody uses."""

    def worst(self) -> Request | None:
        """The running call to go first: of the largest level; there the renewed, then the last in order."""

    def wants_more(self) -> Iterable[Request]:
        """The running calls that may want more than one token in the next step, in order."""

    def tokens_left(self, request: Request) -> int:
        """Tokens a running call wants in its next step."""

    def blocks_needed(self, request: Request) -> tuple[int, int]:
        """(free blocks that admitting it whole takes, tokens the prefix cache has of it)."""

    def growth(self, request: Request, tokens: int) -> int:
        """New blocks a call that has KV needs for ``tokens`` more."""

    def renewed(self, request: Request) -> bool:
        """Whether its quantum was used up, and its slot renewed, at this very boundary."""

    def may_be_admitted(self, request: Request) -> bool:
        """Whether vLLM itself does not block it."""

    def displace(self, request: Request) -> None:
        """Preempt a running call."""

    def hold(self, request: Request) -> None:
        """Take a running call out of the batch with its KV."""

    def resume(self, request: Request) -> None:
        """Put a held call back."""

    def evict(self, request: Request) -> None:
        """Take a held call's KV."""


class Plan:
    """Displacement with recompute: waiting calls take the place of running ones that they outrank."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.guard = host.retained if host.retained is not None and host.retained.firm else None
        self.slots = host.max_num_running_reqs - len(host.running)
        self.budget = host.max_num_scheduled_tokens
        self.reserved = 0
        self.unkept = 0  # of these, blocks that are not kept
        self.given: dict[str, int] = {}
        self.queue: list[tuple[Order, Request]] = [(r.priority, r) for r in host.held.values()]
        heapify(self.queue)
        self.ahead = (r for r in host.queues if host.may_be_admitted(r))
        self.next = next(self.ahead, None)
        self.worst = host.worst()  # of those that run now
        self._give_running()

    def run(self) -> None:
        """Visit the waiting calls in order, victims included; stop at the first that gets no room."""
        while (request := self._first()) is not None and self._place(request):
            pass

    def _first(self) -> Request | None:
        if self.next is not None and not (self.queue and self.queue[0][0] < self.next.priority):
            request, self.next = self.next, next(self.ahead, None)
            return request
        return heappop(self.queue)[1] if self.queue else None

    def _give_running(self) -> None:
        """A token each; who wants more gets what is left, in the order of the batch."""
        host = self.host
        more = {r.request_id: host.tokens_left(r) for r in host.wants_more()}
        total = len(host.running) - len(more) + sum(more.values())
        if total <= self.budget:
            self.budget -= total
            self.given = more
            return
        for request in host.running:
            self._give(request, more.get(request.request_id, 1))

    def _give(self, request: Request, tokens: int) -> None:
        tokens = min(tokens, self.budget)
        self.given[request.request_id] = tokens
        self.budget -= tokens

    def _free(self) -> int:
        return self.host.free_blocks() - self.reserved

    def _victim(self, request: Request) -> Request | None:
        """The worst running call, if ``request`` outranks it."""
        worst = self.worst
        return worst if worst is not None and self._outranks(request, worst) else None

    def _outranks(self, request: Request, running: Request) -> bool:
        mine: Order = request.priority
        theirs: Order = running.priority
        return theirs[0] > mine[0] or (theirs[0] == mine[0] and self.host.renewed(running) and theirs > mine)

    def _remove(self, victim: Request) -> None:
        self.host.displace(victim)
        self.worst = self.host.worst()
        self.slots += 1
        self.budget += self.given.pop(victim.request_id, 1)
        heappush(self.queue, (victim.priority, victim))

    def _place(self, request: Request) -> bool:
        if self._victim(request) is None or not self._find_tokens(request):
            return False
        while self.slots <= 0:
            if not self._find_room(request):
                return False
        need, hit_tokens = self.host.blocks_needed(request)  # looks the whole prompt up
        while need > self._free() or self._barred(request, self.unkept):
            if not self._find_room(request):
                return False
            need, hit_tokens = self.host.blocks_needed(request)
        self.slots -= 1
        self._reserve(request, need)
        self._give(request, request.num_tokens - hit_tokens)
        return True

    def _barred(self, request: Request, promised: int) -> bool:
        return self.guard is not None and self.guard.barred(request, promised)

    def _reserve(self, request: Request, need: int) -> None:
        self.reserved += need
        if self.guard is not None:
            self.unkept += self.guard.lacking(request)

    def _find_room(self, request: Request) -> bool:
        """Displace the worst running call, if ``request`` outranks it."""
        victim = self._victim(request)
        if victim is not None:
            self._remove(victim)
        return victim is not None

    def _find_tokens(self, request: Request) -> bool:
        """Make sure the step has a token left, at the expense of an outranked call in mid-prefill."""
        if self.budget > 0:
            return True
        partial = self._partial()
        if partial is None or not self._outranks(request, partial):
            return False
        self._remove(partial)
        return True

    def _partial(self) -> Request | None:
        last = self.host.running[-1] if self.host.running else None
        return last if last is not None and last.is_prefill_chunk else None


class HoldPlan(Plan):
    """Displacement that keeps the victim's KV: held calls compete with the waiting ones for a place.

    Held calls are in ``host.held``, not in ``host.running``, while this runs.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        while self._free() < 0 and host.held:
            host.evict(self._worst_held())

    def _free(self) -> int:
        """Free blocks net of reservations and of what the running calls take in this step."""
        return super()._free() - self._grown()

    def _grown(self) -> int:
        host = self.host
        return sum(host.growth(r, self.given.get(r.request_id, 1)) for r in host.running)

    def _short(self, request: Request, need: int, held: bool) -> bool:
        if need > self._free():
            return True
        return not held and self._barred(request, self.unkept + self._grown())

    def _remove(self, victim: Request) -> None:
        self.host.hold(victim)
        self.worst = self.host.worst()
        self.slots += 1
        self.budget += self.given.pop(victim.request_id, 1)
        heappush(self.queue, (victim.priority, victim))

    def _place(self, request: Request) -> bool:
        if not self._find_tokens(request) or not self._find_slot(request):
            return False
        held = request.request_id in self.host.held
        need, hit_tokens = self._need(request, held)
        while self._short(request, need, held):
            if not self._find_blocks(request):
                return False
            need, hit_tokens = self._need(request, held)
        self.slots -= 1
        self._give(request, request.num_tokens - hit_tokens)
        if held:
            self.host.resume(request)
            self.worst = self.host.worst()
        else:
            self._reserve(request, need)
        return True

    def _need(self, request: Request, held: bool) -> tuple[int, int]:
        if not held:
            return self.host.blocks_needed(request)
        computed: int = request.num_computed_tokens
        return self.host.growth(request, request.num_tokens - computed), computed

    def _find_slot(self, request: Request) -> bool:
        if self.slots <= 0 and (victim := self._victim(request)) is not None:
            self._remove(victim)
        return self.slots > 0

    def _find_blocks(self, request: Request) -> bool:
        """Take KV of the worst held call behind ``request``, else of an outranked running one."""
        held = self._worst_held(request.priority)
        if held is not None:
            self.host.evict(held)
            return True
        victim = self._victim(request)
        if victim is None:
            return False
        self._remove(victim)
        return True

    def _worst_held(self, behind: Order | None = None) -> Request | None:
        worst = max(self.host.held.values(), key=_order, default=None)
        return worst if worst is not None and (behind is None or worst.priority > behind) else None


def _order(request: Request) -> Order:
    order: Order = request.priority
    return order


def growth(computed: int, tokens: int, held: int, block: int = BLOCK) -> int:
    """New blocks (of ``block`` tokens) that a call with ``held`` needs to compute ``tokens`` more tokens."""
    return max(-(-(computed + tokens) // block) - held, 0)
