"""Displacement: better-level waiting calls take the place of worse running ones.

The one rule here that is not vLLM's own (docs/engine.md, "Displacement"):
Algorithm 1 of Autellix rebuilds its batch from the best queue down, vLLM
preempts only when KV runs out. Decided before the step is scheduled.
"""

from __future__ import annotations

from heapq import heappush
from operator import attrgetter

from systems.engines.batch import Batch
from systems.engines.request import RUNNING, Request
from vocabulary import BLOCK

_order = attrgetter("order")


def outranks(waiting: Request, running: Request) -> bool:
    """Whether ``waiting`` may take the place of ``running``."""
    mine, theirs = waiting.order[0], running.order[0]
    return theirs > mine or (theirs == mine and running.renewed and running.order > waiting.order)


def has_place(batch: Batch, request: Request) -> bool:
    """Whether a slot and the blocks of the whole call are free."""
    if len(batch.running) >= batch.seqs:
        return False
    kv, cap = batch.kv, (request.tokens - 1) // BLOCK
    path, _, used = kv.match(request.ids, request.ends, cap)
    if cap + 1 - used > kv.plain + kv.idle:
        return False
    return not (batch.firm and batch.barred(request, path, cap + 1, 0))


class Room:
    """What the next step has left for newcomers: slots, tokens, and blocks promised so far."""

    def __init__(self, batch: Batch, renewed: list[Request]) -> None:
        config, partial = batch.config, batch.partial
        self.batch = batch
        self.renewed = renewed
        self.slots = config.max_num_seqs - len(batch.running)
        self.budget = config.max_num_batched_tokens - batch.n
        self.chunk = 0
        self.promised = 0
        self.unkept = 0  # of these, blocks that are not kept
        if partial is not None:
            self.chunk = min(partial.tokens - partial.computed, self.budget)
            self.budget -= self.chunk

    @staticmethod
    def fits(batch: Batch, request: Request) -> bool:
        """Whether there is room without displacing anybody: what ``make`` would find, by a shorter way."""
        budget, partial = batch.budget - batch.n, batch.partial
        if partial is not None:
            budget -= partial.tokens - partial.computed
        return budget > 0 and has_place(batch, request)

    def may_grow(self, request: Request) -> bool:
        """Whether ``request`` outranks the worst running call."""
        worst, level = self.batch.worst_level, request.order[0]
        if worst != level or not self.renewed:
            return worst > level
        return any(outranks(request, r) for r in self.fresh(level))

    def fresh(self, level: int) -> list[Request]:
        """Running calls of ``level`` whose quantum ran out at this boundary: displaced first."""
        return [r for r in self.renewed if r.state == RUNNING and r.order[0] == level]

    def worst(self) -> Request:
        """The running call to displace first."""
        fresh = self.fresh(self.batch.worst_level) if self.renewed else None
        return max(fresh or self.batch.running.values(), key=_order)

    def find_tokens(self, request: Request) -> bool:
        """Whether the step has a token left, at the expense of an outranked call in mid-prefill."""
        if self.budget > 0:
            return True
        partial = self.batch.partial
        if partial is None or not outranks(request, partial):
            return False
        self.displace(partial)
        return True

    def displace(self, victim: Request) -> None:
        """Preempt ``victim``; what it would have taken in this step is free."""
        self.budget += 1 if victim.decoding else self.chunk
        self.slots += 1
        self.batch.preempt(victim, "displace")

    def make(self, request: Request) -> bool:
        """Displace worse calls until ``request`` fits, and reserve its place."""
        batch, kv = self.batch, self.batch.kv
        if not self.find_tokens(request):
            return False
        cap = (request.tokens - 1) // BLOCK
        while True:
            path, hit, used = kv.match(request.ids, request.ends, cap)
            need = cap + 1 - used  # cap + 1 == blocks_for(tokens)
            short = need > kv.plain + kv.idle - self.promised
            if not short and batch.firm:
                short = batch.barred(request, path, cap + 1, self.unkept)
            if self.slots > 0 and not short:
                break
            if not self.may_grow(request):
                return False
            self.displace(self.worst())
        self.slots -= 1
        self.promised += need
        if batch.firm:
            self.unkept += batch.lacking(path, cap + 1)
        self.reserve(batch.wants(request, hit))
        return True

    def reserve(self, tokens: int) -> None:
        """A waiting call will want ``tokens``."""
        self.budget -= min(tokens, self.budget)


def displace(batch: Batch, room: type[Room] = Room) -> None:
    """Preempt what must go so that calls which outrank it fit into this step."""
    renewed = batch.renewed
    if not renewed:
        head = batch.first()
        outranks = batch.worst_level > head.order[0]
        if outranks and (batch.n_waiting > 1 or not room.fits(batch, head)):
            _displace(batch, head, room(batch, renewed))
        return
    batch.renewed = []
    if batch.n_waiting and batch.running:
        _displace(batch, batch.head(), room(batch, renewed))
    for request in renewed:
        request.renewed = False


def _displace(batch: Batch, head: Request | None, room: Room) -> None:
    looked = []
    while head is not None and room.may_grow(head):
        looked.append(batch.pop_head())
        if not room.make(head):
            break
        head = batch.head()
    for entry in looked:
        heappush(batch.waiting, entry)
