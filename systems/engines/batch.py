"""Who is in the engine, in which slot, and what each call has received.

The part of the simulated engine that no clock drives: the waiting order, the
running list, slots and quanta, the books of each call, its blocks. ``sim``
adds time.
"""

from __future__ import annotations

from functools import partial
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
# Several of these a call: a third of the time of Decision(...) and Usage(...).
_decision = partial(tuple.__new__, Decision)
_usage = partial(tuple.__new__, Usage)

NOBODY = -(1 << 60)
"""The worst running level where nobody runs."""


class Batch:
    """State and bookkeeping of one simulated engine."""

    # More than 30 attributes: without slots, CPython 3.11 looks every one of them up in a dict.
    __slots__ = ("aborted", "admitted", "block_s", "budget", "calls", "completing", "config",
                 "ctx", "decisions", "decode_tokens", "displaced", "evicted", "expiring", "finished",
                 "finishing", "g", "hit_tokens", "id", "idle_s", "kv", "latency", "levels", "max_model_len",
                 "most_tokens", "n", "n_waiting", "next_due", "partial", "phase", "preempted",
                 "prefill_tokens", "pushed", "query_tokens", "record", "record_steps", "renewed",
                 "running", "scheduler", "seqs", "step_s", "steps", "t", "tracks", "unit", "waiting",
                 "worst_level")  # fmt: skip

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
        self.worst_level = NOBODY  # the largest key of ``levels``
        self.t = 0.0
        self.g = 0
        self.n = 0  # decoding calls
        self.ctx = 0  # sum of their contexts in the next step
        self.phase = [0] * BLOCK  # decoding calls by the step (mod 16) that needs a block
        self.finishing: list[tuple[int, int, Request]] = []
        self.expiring: list[tuple[float, int, Request]] = []  # at step numbers, or seconds
        self.pushed = self.admitted = 0
        self.renewed: list[Request] = []  # calls whose quantum ran out at this boundary
        self.preempted: list[int] = []  # at this boundary, if steps are recorded
        self.tracks = scheduler.tracks_wait
        self.unit = scheduler.unit
        self.record = config.record_decisions
        self.record_steps = config.record_steps
        self.next_due = scheduler.next_due
        self.step_s = latency.step
        self.most_tokens = config.kv_blocks * BLOCK
        self.max_model_len = config.max_model_len
        self.seqs = config.max_num_seqs
        self.budget = config.max_num_batched_tokens
        self.idle_s = self.block_s = 0.0
        self.hit_tokens = self.query_tokens = self.prefill_tokens = self.decode_tokens = 0
        self.displaced = self.evicted = self.finished = self.aborted = 0

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Queue a call that arrives at ``now``. Raises ValueError if it can never fit."""
        longest = call.prompt_tokens + body.output_tokens
        if longest > self.max_model_len:
            raise ValueError(
                f"call {call.seq} needs {longest} tokens of context; the model has {self.max_model_len}"
            )
        if longest - 1 > self.most_tokens:
            raise ValueError(
                f"call {call.seq} needs {blocks_for(longest - 1)} KV blocks; "
                f"the engine has {self.config.kv_blocks}"
            )
        slot = self.scheduler.arrive(call, snap, now)
        calls, seq = self.calls, call.seq
        if not calls and self.t < now:
            self.idle_s += now - self.t
            self.t = now
        calls[seq] = request = Request(call, body, Finished(call, self.id, now), slot)
        order = request.order
        if self.record:
            self.decisions.append(_decision((now, self.id, seq, "arrive", order[0], order[1])))
        self.pushed = pushed = self.pushed + 1  # enqueue, inlined
        self.n_waiting += 1
        heappush(self.waiting, (order, pushed, request))

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
        request.row.aborted = True
        usage = self._close(request, now)
        self.scheduler.abort(call, usage, now)
        self.aborted += 1
        self.note(now, request, "abort", usage.served)
        return request.row

    def enter(self, request: Request) -> None:
        """Book an admission: running list, levels, participation, quantum."""
        seq, row, t, level = request.call.seq, request.row, self.t, request.order[0]
        self.admitted = request.number = self.admitted + 1
        request.state = RUNNING
        request.g_in, request.t_in = self.g, t
        self.running[seq] = request
        levels = self.levels
        if level in levels:
            levels[level] += 1
        else:
            levels[level] = 1
            if level > self.worst_level:
                self.worst_level = level
        if row.t_first_sched == INF:
            row.t_first_sched = t
            row.cached_tokens = request.hit
            if self.kv.caching:
                self.query_tokens += request.tokens
                self.hit_tokens += request.hit
        if request.limit != INF:
            if self.unit == "step":
                request.expire_at = at = self.g + ceil(request.limit - row.steps)
                heappush(self.expiring, (at, request.number, request))
            else:
                self.arm(request)
        if self.tracks:
            self.scheduler.start(request.call, t)
        if self.record:
            self.decisions.append(_decision((t, self.id, seq, "admit", level, request.hit)))

    def schedule_chunk(self, request: Request, chunk: int, prefills: list[tuple[int, int]]) -> None:
        """Give a prefilling call ``chunk`` tokens in this step: cache entry, books.

        Its blocks are taken already.
        """
        computed = request.computed
        request.computed = end = computed + chunk
        prefills.append((chunk, computed))
        full = end // BLOCK
        if full > request.tree:
            self.kv.cache(request.chain, request.ids, request.ends, request.tree, full)
            request.tree = full
        if end == request.tokens:
            self.completing.append(request)
            self.partial = None
        else:
            self.partial = request

    def finish(self, request: Request) -> Finished:
        """A call has all its tokens: free it, tell the policy, return its row.

        ``leave`` and ``_close`` in one, for the way most calls go.
        """
        t, g, kv, row, call = self.t, self.g, self.kv, request.row, request.call
        seq, before, after, level = call.seq, request.tokens, request.total, request.order[0]
        steps = g - request.g0
        self.phase[(request.g0 + 1 - before) & 15] -= 1
        self.n -= 1
        self.ctx -= after
        self.decode_tokens += steps
        prefilled = before - 1 - request.hit
        self.prefill_tokens += prefilled
        if row.preemptions:
            row.reprefill_tokens += prefilled
        else:
            row.prefill_tokens = prefilled
        chain, full = request.chain, (after - 1) // BLOCK
        if full > request.tree:
            kv.cache(chain, request.ids, request.ends, request.tree, full)
        kv.release(chain)
        kv.plain += (after + 14) // BLOCK - (full if kv.caching else 0)
        row.steps = total = row.steps + g - request.g_in
        row.decode_s = decode_s = row.decode_s + (t - request.t_in)
        exec_s = row.prefill_s + row.reprefill_s + decode_s
        row.t_end = t
        row.output_tokens = after - call.prompt_tokens
        row.wait_s = wait_s = t - row.t_arrive - exec_s
        row.level = level
        served: float = total
        if self.unit != "step":
            request.decoded += steps
            request.decoding = False
            request.tree = request.computed = request.hit = 0
            served = exec_s if self.unit == "s" else self.served(request)
        row.served = served
        request.finish_at = NEVER  # entries of the heaps that are still there mean nothing
        request.expire_at = INF
        request.state = GONE
        del self.running[seq], self.calls[seq]
        if self.levels[level] > 1:
            self.levels[level] -= 1
        else:
            self._uncount(level)
        self.scheduler.finish(call, _usage((served, exec_s, wait_s)), t)
        self.finished += 1
        if self.record:
            self.decisions.append(_decision((t, self.id, seq, "finish", level, served)))
        return row

    def _close(self, request: Request, now: float) -> Usage:
        """Complete the row of a call that is gone from the batch."""
        row, call = request.row, request.call
        exec_s = row.prefill_s + row.reprefill_s + row.decode_s
        row.t_end = now
        row.output_tokens = request.tokens - call.prompt_tokens
        row.served = served = row.steps if self.unit == "step" else self.served(request)
        row.wait_s = wait_s = now - row.t_arrive - exec_s
        row.level = request.order[0]
        del self.calls[call.seq]
        return _usage((served, exec_s, wait_s))

    def leave(self, request: Request, now: float, *, scheduled: bool = False) -> None:
        """Take a call out of the batch: books, blocks, cache.

        ``scheduled``: it had been given its token of this step already, so the
        block that token fills counts as cached (vLLM caches at scheduling).
        Decoding is materialised here.
        """
        row, kv, g, tokens = request.row, self.kv, self.g, request.tokens
        row.steps += g - request.g_in
        again = row.preemptions
        if request.decoding:
            prefilled = tokens - 1 - request.hit
            self.phase[(request.g0 + 1 - tokens) & 15] -= 1
            steps = g - request.g0
            self.decode_tokens += steps
            request.decoded += steps
            request.tokens = tokens = tokens + steps
            request.decoding = False
            self.n -= 1
            self.ctx -= tokens
            computed = tokens if scheduled else tokens - 1
            row.decode_s += now - request.t_in
        else:
            computed = request.computed
            prefilled = computed - request.hit
            self.partial = None
            if again:
                row.reprefill_s += now - request.t_in
            else:
                row.prefill_s += now - request.t_in
        self.prefill_tokens += prefilled
        if again:
            row.reprefill_tokens += prefilled
        else:
            row.prefill_tokens += prefilled
        full, chain = computed // BLOCK, request.chain
        if full > request.tree:
            kv.cache(chain, request.ids, request.ends, request.tree, full)
        kv.release(chain)
        kv.plain += (computed + 15) // BLOCK - (full if kv.caching else 0)
        request.chain = []
        request.tree = request.computed = request.hit = 0
        request.finish_at = NEVER
        request.expire_at = INF
        request.state = GONE
        del self.running[request.call.seq]
        self._uncount(request.order[0])

    def _uncount(self, level: int) -> None:
        levels = self.levels
        if levels[level] > 1:
            levels[level] -= 1
            return
        del levels[level]
        if level == self.worst_level:
            self.worst_level = max(levels) if levels else NOBODY

    def _count(self, level: int) -> None:
        self.levels[level] = self.levels.get(level, 0) + 1
        if level > self.worst_level:
            self.worst_level = level

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
        total = row.prefill_tokens + row.reprefill_tokens + request.decoded
        if request.decoding:
            return total + request.tokens - 1 - request.hit + self.g - request.g0
        return total + request.computed - request.hit

    def arm(self, request: Request) -> None:
        """Note when a running call's quantum will be used up."""
        unit = self.unit
        left = request.limit - (
            request.row.steps + self.g - request.g_in if unit == "step" else self.served(request)
        )
        if left == INF:
            request.expire_at = INF
            return
        if unit == "s":
            at: float = self.t + left
        elif unit == "step" or request.decoding:
            at = self.g + ceil(left)
        elif left > 0:
            return  # tokens of a prefill: looked at again after its next chunk
        else:
            at = self.g
        request.expire_at = at
        heappush(self.expiring, (at, request.number, request))

    def expire(self) -> None:
        """Ask the policy about every running call whose quantum is used up."""
        now = self.t if self.unit == "s" else self.g
        due = []
        expiring = self.expiring
        while expiring and expiring[0][0] <= now:
            at, _, request = heappop(expiring)
            if request.expire_at == at:
                request.expire_at = INF  # an older entry of the same call may carry the same time
                due.append((request.number, request))
        if len(due) > 1:
            due.sort()
        for _, request in due:
            self._expired(request)

    def _expired(self, request: Request) -> None:
        call, row = request.call, request.row
        served = row.steps + self.g - request.g_in if self.unit == "step" else self.served(request)
        old, t = request.order[0], self.t
        slot = self.scheduler.expire(call, served, t)
        level, key, quantum = request.slot = slot
        request.order = (level, key, call.seq)
        request.limit = served + quantum
        if level != old:
            self._uncount(old)
            self._count(level)
            row.demotions += level > old
        request.renewed = True
        self.renewed.append(request)
        if quantum != INF:
            if self.unit == "step":
                request.expire_at = at = self.g + ceil(quantum)
                heappush(self.expiring, (at, request.number, request))
            else:
                self.arm(request)
        if self.record:
            self.decisions.append(_decision((t, self.id, call.seq, "expire", level, key)))

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
            if request.order is order and request.state == WAITING:
                return request
            heappop(waiting)
        return None

    def first(self) -> Request:
        """``head`` where somebody waits."""
        order, _, request = self.waiting[0]
        if request.order is order and request.state == WAITING:
            return request
        heappop(self.waiting)
        return self.first()

    def pop_head(self) -> tuple[Order, int, Request]:
        """Take the entry ``head`` looked at; the call still counts as waiting."""
        return heappop(self.waiting)

    def worst(self) -> Request:
        """The running call that comes last in the order."""
        return max(self.running.values(), key=_order)

    def preempt(self, request: Request, rule: str, *, scheduled: bool = False) -> None:
        """Recompute preemption: blocks freed, the call waits in its slot."""
        self.leave(request, self.t, scheduled=scheduled)
        request.row.preemptions += 1
        if rule == "displace":
            self.displaced += 1
        else:
            self.evicted += 1
        if self.record_steps:
            self.preempted.append(request.call.seq)
        self.enqueue(request)
        if self.tracks:
            row, t = request.row, self.t
            exec_s = row.prefill_s + row.reprefill_s + row.decode_s
            usage = _usage((self.served(request), exec_s, t - row.t_arrive - exec_s))
            self.scheduler.stop(request.call, usage, t)
        self.note(self.t, request, rule, 0.0)

    def note(self, time: float, request: Request, rule: str, value: float) -> None:
        """Record a decision, if decisions are recorded."""
        if self.record:
            seq, level = request.call.seq, request.order[0]
            self.decisions.append(_decision((time, self.id, seq, rule, level, value)))

    def stats(self) -> dict[str, float]:
        """Totals since the start; seconds, tokens, blocks, counts."""
        prefilled, decoded = self.prefill_tokens, self.decode_tokens
        for request in self.running.values():  # theirs are booked when they leave
            if request.decoding:
                prefilled += request.tokens - 1 - request.hit
                decoded += self.g - request.g0
            else:
                prefilled += request.computed - request.hit
        return {
            "steps": self.g,
            "busy_s": self.t - self.idle_s,
            "hit_tokens": self.hit_tokens,
            "query_tokens": self.query_tokens,
            "computed_prefill_tokens": prefilled,
            "decode_tokens": decoded,
            "preemptions": self.displaced + self.evicted,
            "displaced": self.displaced,
            "evicted": self.evicted,
            "evicted_blocks": self.kv.evicted,
            "calls_finished": self.finished,
            "calls_aborted": self.aborted,
            "kv_block_seconds": self.block_s,
        }
