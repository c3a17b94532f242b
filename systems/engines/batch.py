"""What happens to a call in the engine: submitted, admitted, given chunks, finished, preempted.

The books of each call and its blocks; no clock drives this part. ``sim`` adds time.
"""

from __future__ import annotations

from functools import partial
from heapq import heappush
from math import ceil

from systems.engines.radix import Path
from systems.engines.request import GONE, NEVER, RUNNING, Request
from systems.engines.slots import Slots
from vocabulary import (
    BLOCK,
    INF,
    Body,
    Call,
    Decision,
    Finished,
    Snapshot,
    Usage,
    blocks_for,
)

# Several of these a call: a third of the time of Decision(...) and Usage(...).
_decision = partial(tuple.__new__, Decision)
_usage = partial(tuple.__new__, Usage)

NOTHING_MOVED: dict[str, float] = dict.fromkeys(
    ("swap_s", "swap_out_blocks", "swap_in_blocks", "swap_outs", "swap_full",
     "host_hit_tokens", "host_in_blocks", "host_dropped_blocks"), 0,
)  # fmt: skip
"""Totals of what moves between GPU and host memory, where nothing does."""


class Batch(Slots):
    """Calls and their books in one simulated engine."""

    __slots__ = ()

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
        if request.again:
            row.reprefill_tokens += prefilled
        else:
            row.prefill_tokens += prefilled
        chain, full = request.chain, (after - 1) // BLOCK
        if full > request.tree:
            kv.cache(chain, request.ids, request.ends, request.tree, full)
        kv.release(chain)
        kv.plain += (after + 14) // BLOCK - (full if kv.caching else 0)
        row.steps = total = row.steps + g - request.g_in
        row.decode_s = decode_s = row.decode_s + (t - request.t_in)
        exec_s = row.prefill_s + row.reprefill_s + decode_s + row.swap_s
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
        exec_s = row.prefill_s + row.reprefill_s + row.decode_s + row.swap_s
        row.t_end = now
        row.output_tokens = request.tokens - call.prompt_tokens
        row.served = served = row.steps if self.unit == "step" else self.served(request)
        row.wait_s = wait_s = now - row.t_arrive - exec_s
        row.level = request.order[0]
        del self.calls[call.seq]
        return _usage((served, exec_s, wait_s))

    def leave(self, request: Request, now: float, *, scheduled: bool = False) -> None:
        """Take a call out of the batch, and its blocks.

        ``scheduled``: it had been given its token of this step already, so the
        block that token fills counts as cached (vLLM caches at scheduling).
        """
        decoding = request.decoding
        self.unbook(request, now)
        self.give_back(request, request.computed + (scheduled and decoding))

    def unbook(self, request: Request, now: float) -> None:
        """Take a call out of the batch, which materialises its decoding; its blocks stay."""
        row, g, tokens, again = request.row, self.g, request.tokens, request.again
        row.steps += g - request.g_in
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
            request.computed = tokens - 1
            row.decode_s += now - request.t_in
        else:
            prefilled = request.computed - request.hit
            if request is self.partial:
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
        request.hit = request.computed
        request.finish_at = NEVER
        request.expire_at = INF
        request.state = GONE
        del self.running[request.call.seq]
        self._uncount(request.order[0])

    def give_back(self, request: Request, computed: int) -> None:
        """Give back the blocks of ``computed`` tokens; what is full stays findable."""
        kv, full, chain = self.kv, computed // BLOCK, request.chain
        if full > request.tree:
            kv.cache(chain, request.ids, request.ends, request.tree, full)
        kv.release(chain)
        kv.plain += (computed + 15) // BLOCK - (full if kv.caching else 0)
        request.chain = []
        request.tree = request.computed = request.hit = 0

    def preempt(self, request: Request, rule: str, *, scheduled: bool = False) -> None:
        """Recompute preemption: blocks freed, the call waits in its slot."""
        self.leave(request, self.t, scheduled=scheduled)
        request.again = True
        self.enqueue(request)
        self.count_preemption(request, rule)
        self.tell_stop(request)

    def count_preemption(self, request: Request, rule: str) -> None:
        """Book that a call lost its place or its blocks: ``displace``, ``hold`` or ``evict``."""
        request.row.preemptions += 1
        if rule == "evict":
            self.evicted += 1
        else:
            self.displaced += 1
        if self.record_steps:
            self.preempted.append(request.call.seq)
        self.note(self.t, request, rule, 0.0)

    def tell_stop(self, request: Request) -> None:
        """The policy hears that a call waits again."""
        if self.tracks:
            row, t = request.row, self.t
            exec_s = row.prefill_s + row.reprefill_s + row.decode_s + row.swap_s
            usage = _usage((self.served(request), exec_s, t - row.t_arrive - exec_s))
            self.scheduler.stop(request.call, usage, t)

    def stall(self, request: Request, seconds: float) -> None:
        """A running call got nothing in the step just run, of ``seconds``: shift what is implied."""
        request.g_in += 1
        request.t_in += seconds
        if request.decoding:
            self.phase[(request.g0 + 1 - request.tokens) & 15] -= 1
            request.g0 += 1
            self.phase[(request.g0 + 1 - request.tokens) & 15] += 1
            request.finish_at += 1
            heappush(self.finishing, (request.finish_at, request.number, request))
        if request.expire_at != INF:
            request.expire_at += seconds if self.unit == "s" else 1
            heappush(self.expiring, (request.expire_at, request.number, request))

    def wants(self, request: Request, hit: int) -> int:
        """Tokens a waiting call has to compute if ``hit`` of its blocks are found in the cache."""
        return request.tokens - BLOCK * hit

    def lacking(self, path: Path, blocks: int) -> int:
        """Of ``blocks``, those that a waiting call does not share with calls or with what is kept."""
        return blocks - sum([n for run, n in path if run.refs])

    def barred(self, request: Request, path: Path, blocks: int, promised: int) -> bool:  # noqa: ARG002
        """Whether kept KV is in the way of a waiting call (``firm`` engines): nothing is kept here."""
        return False

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
            **NOTHING_MOVED,
        }
