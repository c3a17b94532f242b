"""Displacement: better-level waiting calls take the place of worse running ones.

The one rule here that is not vLLM's own (docs/engine.md, "Displacement"):
Algorithm 1 of Autellix rebuilds its batch from the best queue down, vLLM
preempts only when KV runs out. Decided before the step is scheduled.
"""

from __future__ import annotations

from heapq import heappush

from systems.engines.batch import Batch
from systems.engines.request import Request
from vocabulary import BLOCK, blocks_for


class _Room:
    """What the next step has left for newcomers: slots, tokens, and blocks promised so far."""

    def __init__(self, batch: Batch) -> None:
        config, partial = batch.config, batch.partial
        self.batch = batch
        self.slots = config.max_num_seqs - len(batch.running)
        self.budget = config.max_num_batched_tokens - batch.n
        self.chunk = 0
        self.promised = 0
        if partial is not None:
            self.chunk = min(partial.tokens - partial.computed, self.budget)
            self.budget -= self.chunk

    def displace(self, victim: Request) -> None:
        self.budget += 1 if victim.decoding else self.chunk
        self.slots += 1
        self.batch.preempt(victim, "displace")

    def make(self, request: Request) -> bool:
        """Displace worse calls until ``request`` fits, and reserve its place."""
        batch, kv, level = self.batch, self.batch.kv, request.slot.level
        if self.budget <= 0:
            if batch.partial is None or batch.partial.slot.level <= level:
                return False
            self.displace(batch.partial)
        cap = (request.tokens - 1) // BLOCK
        while True:
            _, hit, used = kv.match(request.ids, request.ends, cap)
            need = blocks_for(request.tokens) - used
            if self.slots > 0 and need <= kv.free() - self.promised:
                break
            if not batch.levels or max(batch.levels) <= level:
                return False
            self.displace(batch.worst())
        self.slots -= 1
        self.promised += need
        self.budget -= min(request.tokens - BLOCK * hit, self.budget)
        return True


def displace(batch: Batch) -> None:
    """Preempt what must go so that better-level waiting calls fit into this step."""
    head = batch.head()
    if head is None or not batch.levels or max(batch.levels) <= head.slot.level:
        return
    room, looked = _Room(batch), []
    while head is not None and batch.levels and max(batch.levels) > head.slot.level:
        looked.append(batch.pop_head())
        if not room.make(head):
            break
        head = batch.head()
    for entry in looked:
        heappush(batch.waiting, entry)
