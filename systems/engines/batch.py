"""Who is in the engine, in which slot, and what each call has received.

The part of the simulated engine that no clock drives: the waiting order, the
running list, slots and quanta, the books of each call, its blocks. ``sim``
adds time.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil
from operator import attrgetter

from systems.engines.radix import RadixKV
from systems.engines.request import GONE, NEVER, RUNNING, WAITING, Order, Request
from systems.protocols import LatencyModel, Scheduler
from vocabulary import (
    BLOCK,
    INF,
    Body,
    Call,
    Decision,
    EngineConfig,
    Finished,
    Slot,
    Snapshot,
    Step,
    Usage,
    blocks_for,
)

_order = attrgetter("order")


class Batch:
    """State and bookkeeping of one simulated engine."""

    def __init__(self, id: int, config: EngineConfig, scheduler: Scheduler, latency: LatencyModel) -> None:  # noqa: A002
        self.id = id
        self.config = config
        self.scheduler = scheduler
        self.latency = latency
        self.kv = RadixKV(config.kv_blocks, config.prefix_cache)
        self.steps: list[Step] = []
        self.decisions: list[Decision] = []
        self.calls: dict[int, Request] = {}
        self.running: dict[int, Request] = {}  # in order of admission
        self.waiting: list[tuple[Order, int, Request]] = []
        self.n_waiting = 0
        self.partial: Request | None = None  # the one call in mid-prefill, last in running
        self.completing: list[Request] = []  # calls whose prefill ends with this step
        self.levels: dict[int, int] = {}  # running calls per level
        self.t = 0.0
        self.g = 0
        self.n = 0  # decoding calls
        self.ctx = 0  # sum of their contexts in the next step
        self.phase = [0] * BLOCK  # decoding calls by the step (mod 16) that needs a block
        self.finishing: list[tuple[int, int, Request]] = []
        self.expiring: list[tuple[float, int, Request]] = []
        self.pushed = self.admitted = 0
        self.renewed: list[Request] = []  # calls whose quantum ran out at this boundary
        self.preempted: list[int] = []  # at this boundary, if steps are recorded
        self.tracks = scheduler.tracks_wait
        self.unit = scheduler.unit
        self.record = config.record_decisions
        self.max_blocks = config.kv_blocks
        self.budget = config.max_num_batched_tokens
        self.busy_s = self.block_s = 0.0
        self.hit_tokens = self.query_tokens = self.prefill_tokens = self.decode_tokens = 0
        self.displaced = self.evicted = self.finished = self.aborted = 0

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Queue a call that arrives at ``now``. Raises ValueError if it can never fit."""
        longest = call.prompt_tokens + body.output_tokens
        if longest > self.config.max_model_len:
            raise ValueError(
                f"call {call.seq} needs {longest} tokens of context; "
                f"the model has {self.config.max_model_len}"
            )
        if longest - 1 > self.max_blocks * BLOCK:
            raise ValueError(
                f"call {call.seq} needs {blocks_for(longest - 1)} KV blocks; "
                f"the engine has {self.config.kv_blocks}"
            )
        slot = self.scheduler.arrive(call, snap, now)
        if not self.calls and self.t < now:
            self.t = now
        request = Request(call, body, Finished(call, self.id, now, level=slot.level), slot)
        self.calls[call.seq] = request
        if self.record:
            self.note(now, request, "arrive", slot.key)
        self.enqueue(request)

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take the call out at a boundary; None if it is not here (any more)."""
        request = self.calls.get(call.seq)
        if request is None:
            return None
        if request.state == RUNNING:
            now = max(now, self.t)
            self.leave(request, now)
        else:
            self.n_waiting -= 1
            request.state = GONE
        usage = self._close(request, now)
        request.row.aborted = True
        self.scheduler.abort(call, usage, now)
        self.aborted += 1
        self.note(now, request, "abort", usage.served)
        return request.row

    def enter(self, request: Request) -> None:
        """Book an admission: running list, levels, participation, quantum."""
        call, row = request.call, request.row
        self.admitted += 1
        request.number = self.admitted
        request.state = RUNNING
        request.g_in, request.t_in = self.g, self.t
        self.running[call.seq] = request
        level = request.slot.level
        self.levels[level] = self.levels.get(level, 0) + 1
        if row.t_first_sched == INF:
            row.t_first_sched = self.t
            row.cached_tokens = request.computed
            if self.kv.caching:
                self.query_tokens += request.tokens
                self.hit_tokens += request.computed
        if request.limit != INF:
            self.arm(request)
        if self.tracks:
            self.scheduler.start(call, self.t)
        if self.record:
            self.note(self.t, request, "admit", request.computed)

    def schedule_chunk(self, request: Request, chunk: int, prefills: list[tuple[int, int]]) -> None:
        """Give a prefilling call ``chunk`` tokens in this step: blocks, cache entry, books."""
        kv, computed = self.kv, request.computed
        end = computed + chunk
        kv.take((end + 15) // BLOCK - (computed + 15) // BLOCK)
        full = end // BLOCK
        if full > request.tree:
            kv.cache(request.chain, request.ids, request.ends, request.tree, full)
            request.tree = full
        request.computed = end
        prefills.append((chunk, computed))
        row = request.row
        if row.preemptions:
            row.reprefill_tokens += chunk
        else:
            row.prefill_tokens += chunk
        if end == request.tokens:
            self.completing.append(request)
            self.partial = None
        else:
            self.partial = request

    def finish(self, request: Request) -> Finished:
        """A call has all its tokens: free it, tell the policy, return its row."""
        t = self.t
        self.leave(request, t)
        usage = self._close(request, t)
        self.scheduler.finish(request.call, usage, t)
        self.finished += 1
        if self.record:
            self.note(t, request, "finish", usage.served)
        return request.row

    def _close(self, request: Request, now: float) -> Usage:
        """Complete the row of a call that is gone from the batch."""
        row = request.row
        row.t_end = now
        row.output_tokens = request.tokens - request.call.prompt_tokens
        usage = self.usage(request, now)
        row.served, _, row.wait_s = usage
        row.level = request.slot.level
        del self.calls[request.call.seq]
        return usage

    def leave(self, request: Request, now: float, *, scheduled: bool = False) -> None:
        """Take a call out of the batch: books, blocks, cache.

        ``scheduled``: it had been given its token of this step already, so the
        block that token fills counts as cached (vLLM caches at scheduling).
        """
        row = request.row
        row.steps += self.g - request.g_in
        if request.decoding:
            computed = self._stop_decoding(request, scheduled)
            row.decode_s += now - request.t_in
        else:
            computed = request.computed
            self.partial = None
            if row.preemptions:
                row.reprefill_s += now - request.t_in
            else:
                row.prefill_s += now - request.t_in
        kv, full = self.kv, computed // BLOCK
        if full > request.tree:
            kv.cache(request.chain, request.ids, request.ends, request.tree, full)
        kv.release(request.chain)
        kv.plain += (computed + 15) // BLOCK - (full if kv.caching else 0)
        request.chain = []
        request.tree = request.computed = 0
        request.finish_at = NEVER
        request.expire_at = INF
        request.state = GONE
        del self.running[request.call.seq]
        self._uncount(request.slot.level)

    def _uncount(self, level: int) -> None:
        if self.levels[level] == 1:
            del self.levels[level]
        else:
            self.levels[level] -= 1

    def _stop_decoding(self, request: Request, scheduled: bool) -> int:
        """Materialise a decoding call; returns its computed tokens."""
        steps = self.g - request.g0
        self.phase[(request.g0 + 1 - request.tokens) & 15] -= 1
        request.tokens += steps
        request.decoded += steps
        request.decoding = False
        self.n -= 1
        self.ctx -= request.tokens
        return request.tokens if scheduled else request.tokens - 1

    # -- slots -----------------------------------------------------------------------

    def served(self, request: Request) -> float:
        """Service so far, in the scheduler's unit."""
        row, running = request.row, request.state == RUNNING
        unit = self.unit
        if unit == "step":
            return row.steps + (self.g - request.g_in if running else 0)
        if unit == "s":
            booked = row.prefill_s + row.reprefill_s + row.decode_s
            return booked + (self.t - request.t_in if running else 0.0)
        decoding = self.g - request.g0 if request.decoding else 0
        return row.prefill_tokens + row.reprefill_tokens + request.decoded + decoding

    def usage(self, request: Request, now: float) -> Usage:
        """Usage of a call that is not running."""
        row = request.row
        exec_s = row.prefill_s + row.reprefill_s + row.decode_s
        unit = self.unit
        served = row.steps if unit == "step" else self.served(request)
        return Usage(served, exec_s, now - row.t_arrive - exec_s)

    def arm(self, request: Request) -> None:
        """Note when a running call's quantum will be used up."""
        left = request.limit - self.served(request)
        unit = self.unit
        if left == INF:
            request.expire_at = INF
            return
        if unit == "s":
            at: float = self.t + left
        elif unit == "step" or request.decoding:
            at = float(self.g + ceil(left))
        elif left > 0:
            return  # tokens of a prefill: looked at again after its next chunk
        else:
            at = float(self.g)
        request.expire_at = at
        heappush(self.expiring, (at, request.number, request))

    def expire(self) -> None:
        """Ask the policy about every running call whose quantum is used up."""
        now = self.t if self.unit == "s" else float(self.g)
        due = []
        expiring = self.expiring
        while expiring and expiring[0][0] <= now:
            at, _, request = heappop(expiring)
            if request.expire_at == at:
                request.expire_at = INF  # an older entry of the same call may carry the same time
                due.append((request.number, request))
        due.sort()
        for _, request in due:
            served = self.served(request)
            old = request.slot.level
            self._uncount(old)
            self.take_slot(request, self.scheduler.expire(request.call, served, self.t), served)
            level = request.slot.level
            self.levels[level] = self.levels.get(level, 0) + 1
            request.row.demotions += level > old
            request.renewed = True
            self.renewed.append(request)
            self.arm(request)
            self.note(self.t, request, "expire", request.slot.key)

    def _promote(self) -> None:
        """Anti-starvation: waiting calls take the slots the policy hands out."""
        for call, slot in self.scheduler.due(self.t):
            request = self.calls[call.seq]
            self.take_slot(request, slot, self.served(request))
            request.row.promotions += 1
            self.n_waiting -= 1
            self.enqueue(request)
            self.note(self.t, request, "promote", slot.key)

    def take_slot(self, request: Request, slot: Slot, served: float) -> None:
        """Move a call to ``slot``; its quantum counts from ``served`` on."""
        request.slot = slot
        request.order = (slot.level, slot.key, request.call.seq)
        request.limit = served + slot.quantum

    # -- the waiting queue -----------------------------------------------------------

    def enqueue(self, request: Request) -> None:
        """Put a call into the waiting order."""
        request.state = WAITING
        self.pushed += 1
        self.n_waiting += 1
        heappush(self.waiting, (request.order, self.pushed, request))

    def head(self) -> Request | None:
        """First of the queue, None if it is empty; drops entries that moved or left."""
        waiting = self.waiting
        while waiting:
            order, _, request = waiting[0]
            if request.state == WAITING and request.order == order:
                return request
            heappop(waiting)
        return None

    def pop_head(self) -> tuple[Order, int, Request]:
        """Take the entry ``head`` looked at; the call still counts as waiting."""
        return heappop(self.waiting)

    def worst(self) -> Request:
        """The running call that comes last in the order."""
        return max(self.running.values(), key=_order)

    def running_calls(self) -> set[Request]:
        """All running calls, as a set (for the record of steps)."""
        return set(self.running.values()) if self.config.record_steps else set()

    def preempt(self, request: Request, rule: str, *, scheduled: bool = False) -> None:
        """Recompute preemption: blocks freed, the call waits in its slot."""
        self.leave(request, self.t, scheduled=scheduled)
        request.row.preemptions += 1
        if rule == "displace":
            self.displaced += 1
        else:
            self.evicted += 1
        if self.config.record_steps:
            self.preempted.append(request.call.seq)
        self.enqueue(request)
        if self.tracks:
            self.scheduler.stop(request.call, self.usage(request, self.t), self.t)
        self.note(self.t, request, rule, 0.0)

    def note(self, time: float, request: Request, rule: str, value: float) -> None:
        """Record a decision, if decisions are recorded."""
        if self.record:
            self.decisions.append(Decision(time, self.id, request.call.seq, rule, request.slot.level, value))

    def stats(self) -> dict[str, float]:
        """Totals since the start; seconds, tokens, blocks, counts."""
        return {
            "steps": self.g,
            "busy_s": self.busy_s,
            "hit_tokens": self.hit_tokens,
            "query_tokens": self.query_tokens,
            "computed_prefill_tokens": self.prefill_tokens,
            "decode_tokens": self.decode_tokens,
            "preemptions": self.displaced + self.evicted,
            "displaced": self.displaced,
            "evicted": self.evicted,
            "evicted_blocks": self.kv.evicted,
            "calls_finished": self.finished,
            "calls_aborted": self.aborted,
            "kv_block_seconds": self.block_s,
        }
