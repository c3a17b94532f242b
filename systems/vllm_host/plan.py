"""Who runs in the next step: displacement before vLLM schedules (docs/engine.md), and hold (docs/vllm.md).

Duck-typed over the host (``systems.vllm_host.scheduler.PolicyMixin``) and vLLM's
requests, so that it imports nothing of vLLM. All room is counted in slots,
16-token blocks and tokens of one step.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from vocabulary import blocks_for

Request = Any
Order = tuple[int, float, int]


class Plan:
    """Displacement with recompute: a waiting call takes the place of running ones of a strictly worse level."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.slots = host.max_num_running_reqs - len(host.running)
        self.budget = host.max_num_scheduled_tokens
        self.reserved = 0
        self.given: dict[str, int] = {}
        self.queue: list[tuple[Order, Request]] = []
        for request in host.running:
            self._give(request, host.tokens_left(request))

    def run(self) -> None:
        """Visit the waiting calls in order, victims included; stop at the first that gets no room."""
        host = self.host
        first = next(iter(host.waiting), None)
        if not host.held and (first is None or self._worst(first.priority[0]) is None):
            return
        waiting = (r for r in host.waiting if host.may_be_admitted(r))
        self.queue = [(r.priority, r) for r in (*host.held.values(), *waiting)]
        heapify(self.queue)
        while self.queue and self._place(heappop(self.queue)[1]):
            pass

    def _give(self, request: Request, tokens: int) -> None:
        tokens = min(tokens, self.budget)
        self.given[request.request_id] = tokens
        self.budget -= tokens

    def _free(self) -> int:
        return int(self.host.free_blocks()) - self.reserved

    def _worst(self, level: float) -> Request | None:
        """The worst running call if its level is strictly worse than ``level``."""
        worst = max(self.host.running, key=_order, default=None)
        return worst if worst is not None and worst.priority[0] > level else None

    def _remove(self, victim: Request) -> None:
        self.host.displace(victim)
        self.slots += 1
        self.budget += self.given.pop(victim.request_id, 0)
        heappush(self.queue, (victim.priority, victim))

    def _place(self, request: Request) -> bool:
        level = request.priority[0]
        if self._worst(level) is None or not self._find_tokens(level):
            return False
        need, hit_tokens = self.host.blocks_needed(request)
        while self.slots <= 0 or need > self._free():
            victim = self._worst(level)
            if victim is None:
                return False
            self._remove(victim)
            need, hit_tokens = self.host.blocks_needed(request)
        self.slots -= 1
        self.reserved += need
        self._give(request, request.num_tokens - hit_tokens)
        return True

    def _find_tokens(self, level: float) -> bool:
        """Make sure the step has a token left, at the expense of a worse call in mid-prefill."""
        if self.budget > 0:
            return True
        partial = self._partial()
        if partial is None or partial.priority[0] <= level:
            return False
        self._remove(partial)
        return self.budget > 0

    def _partial(self) -> Request | None:
        last = self.host.running[-1] if self.host.running else None
        return last if last is not None and last.is_prefill_chunk else None


class HoldPlan(Plan):
    """Displacement that keeps the victim's KV: held calls compete with the waiting ones for a place.

    Held calls are in ``host.held``, not in ``host.running``, while this runs.
    """

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        while self._free() < 0 and host.held:
            host.evict(self._worst_held())

    def _free(self) -> int:
        """Free blocks net of reservations and of what the running calls take in this step."""
        host = self.host
        return super()._free() - sum(host.growth(r, self.given[r.request_id]) for r in host.running)

    def _remove(self, victim: Request) -> None:
        self.host.hold(victim)
        self.slots += 1
        self.budget += self.given.pop(victim.request_id, 0)
        heappush(self.queue, (victim.priority, victim))

    def _place(self, request: Request) -> bool:
        level = request.priority[0]
        if not self._find_tokens(level) or not self._find_slot(level):
            return False
        held = request.request_id in self.host.held
        need, hit_tokens = self._need(request, held)
        while need > self._free():
            if not self._find_blocks(request, level):
                return False
            need, hit_tokens = self._need(request, held)
        self.slots -= 1
        self._give(request, request.num_tokens - hit_tokens)
        if held:
            self.host.resume(request)
        else:
            self.reserved += need
        return True

    def _need(self, request: Request, held: bool) -> tuple[int, int]:
        if not held:
            need, hit_tokens = self.host.blocks_needed(request)
            return int(need), int(hit_tokens)
        computed = request.num_computed_tokens
        return self.host.growth(request, request.num_tokens - computed), computed

    def _find_slot(self, level: float) -> bool:
        if self.slots <= 0 and (victim := self._worst(level)) is not None:
            self._remove(victim)
        return self.slots > 0

    def _find_blocks(self, request: Request, level: float) -> bool:
        """Idle KV pays first: the worst held call behind ``request``, then the worst running call of a worse level."""
        held = self._worst_held(request.priority)
        if held is not None:
            self.host.evict(held)
            return True
        victim = self._worst(level)
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


def growth(computed: int, tokens: int, held: int) -> int:
    """New blocks a call with ``held`` blocks needs to compute ``tokens`` more tokens."""
    return max(blocks_for(computed + tokens) - held, 0)
