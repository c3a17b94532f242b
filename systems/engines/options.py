"""The simulated engine with the options of docs/engine-options.md, as lazy as without.

What is implied for a decoding call in ``sim`` (it takes part in every step) is
here: in every step but those that prefill alone. Three readings keep it a
difference of two numbers: ``g`` counts the steps decoding calls take part in,
``paused_s`` sums the seconds of the others, ``swapped_s`` the transfers in the
former. A call's books are made up (``_settle``) when somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from systems.engines.batch import Batch
from systems.engines.displacement import Room, displace, has_place
from systems.engines.host_memory import HostMemory, TierKV
from systems.engines.request import RUNNING, Request
from systems.engines.sim import SimEngine
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import (
    BLOCK,
    INF,
    Body,
    Call,
    EngineConfig,
    Finished,
    Segment,
    Snapshot,
    blocks_for,
)


class OptionEngine(SimEngine):
    """``SimEngine`` with chunked prefill off, scheduling every N steps, swap, and a readable cache."""

    __slots__ = ("alone_steps", "arriving", "every", "host", "look", "moved_s", "newcomers", "passed",
                 "paused_s", "room", "swapped_s", "swapping", "transfer_s", "whole")  # fmt: skip

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        transfer: TransferModel | None = None,
    ) -> None:
        super().__init__(id, config, scheduler, latency, transfer)
        self.step_s = self._step_seconds
        self.every = config.schedule_every
        self.passed = 0  # the step that the last pass started
        self.look = True  # whether the next pass may find something changed for those that wait
        self.whole = not config.chunked_prefill
        self.room: type[Room] = WholeRoom if self.whole else Room
        self.newcomers: list[tuple[Request, int]] = []  # (call, tokens) of a step without the running
        self.alone_steps = 0  # such steps
        self.paused_s = self.swapped_s = 0.0
        self.swapping = config.preemption == "swap"
        self.host = HostMemory(config.host_blocks)
        if config.host_tier:
            self.kv = TierKV(config.kv_blocks, self.host)
        self.transfer_s = self.moved_s = 0.0  # transfers so far, and in the last step
        self.arriving: tuple[Call, Body] | None = None
        if getattr(scheduler, "reads_cache", False):
            scheduler.attach(self)  # type: ignore[attr-defined]

    # -- the host's side -------------------------------------------------------------

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Queue a call that arrives at ``now``. Raises ValueError if it can never fit."""
        self.arriving = call, body
        super().submit(call, body, snap, now)
        self.arriving = None
        self.calls[call.seq].copy = 0
        self.look = True

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take the call out at a boundary; None if it is not here (any more)."""
        request = self.calls.get(call.seq)
        if request is not None:
            self.host.drop(request)
            self.look = True
        return super().abort(call, now)

    def prefix(self, call: Call) -> list[Segment]:
        """What the prefix cache holds of a waiting call's prompt (systems.protocols.CacheView)."""
        request = self.calls.get(call.seq)
        if request is not None:
            ids, ends, tokens = request.ids, request.ends, request.tokens
        else:
            assert self.arriving is not None
            _, body = self.arriving
            ids, ends, tokens = body.ids, body.ends, call.prompt_tokens
        _, hit, _ = self.kv.match(ids, ends, (tokens - 1) // BLOCK)
        return _cut(ids, ends, hit * BLOCK)

    def stats(self) -> dict[str, float]:
        """Totals since the start; seconds, tokens, blocks, counts."""
        steps = self.g + self.alone_steps
        return {**super().stats(), "steps": steps, "swap_s": self.transfer_s, **self.host.totals()}

    # -- one boundary ----------------------------------------------------------------

    def boundary(self, until: float, waiting: int = 0) -> None:
        """Start of a step, and the step; policies act, and calls are admitted, only at a pass."""
        if self.running and not self._is_pass():
            self.between()
        else:
            self.passed = self.g + self.alone_steps
            self.look = False
            self.rearrange()
            waiting = self.n_waiting
            if self.whole and waiting:
                prefills: list[tuple[int, int]] = []
                self.admit(self.budget, prefills)
                if self.newcomers:
                    self._newcomers_alone(prefills)
                    return
                waiting = 0
        self.go(until, waiting)

    def go(self, until: float, waiting: int) -> None:
        """The step(s) from here: the running calls, then the first of ``waiting`` ones (0: admit nobody)."""
        super().boundary(until, waiting)

    def _is_pass(self) -> bool:
        """Passes in between that nobody needed are skipped: they come every N steps."""
        return (self.g + self.alone_steps - self.passed) % self.every == 0

    def rearrange(self) -> None:
        """What policies may do at a pass: promote and displace."""
        if self.n_waiting and self.tracks and self.next_due() <= self.t:
            self.promote()
        if self.renewed or (self.n_waiting and self.worst_level > self.waiting[0][0][0]):
            displace(self, self.room)

    def between(self) -> None:
        """What happens at a boundary that is no pass, before the running are scheduled."""

    def expire(self) -> None:
        """Ask the policy about running calls whose quantum is used up, if the boundary is a pass."""
        if self._is_pass():
            super().expire()

    def until_asked(self, k: int, stop: float) -> tuple[int, float]:
        """``k`` steps and time ``stop``, or less where policies may have something to say before."""
        to_pass = self.every - (self.g + self.alone_steps - self.passed) % self.every
        expiring = self.expiring
        if expiring:
            left = expiring[0][0] - self.service_clock()
            if self.unit == "s" and left > 0:
                stop = min(stop, self.t + left)
            else:  # at the first pass from there
                late = max(0, int(left) - to_pass) if self.unit != "s" else 0
                k = min(k, to_pass - -late // self.every * self.every)
        if self.idle_calls():
            if self.tracks:
                due = self.next_due()
                if due > self.t:
                    stop = min(stop, due)
                else:
                    k = min(k, to_pass)
            if self.look or (self.n_waiting and self.outranked()):
                k = min(k, to_pass)
        return k, stop

    def idle_calls(self) -> int:
        """Calls here that are not running."""
        return self.n_waiting

    def decode(self, until: float, need: int) -> None:
        """Pure decode steps until something changes; one only if blocks are moved in it."""
        if self.n and self.host.moving():
            if need:
                self.kv.take(need)
            self.run_mixed([], self.n, self.ctx, self.running)
            return
        super().decode(until, need)

    def _step_seconds(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """A step that decoding calls take part in, with what is moved in it."""
        seconds = self._transfers()
        self.swapped_s += seconds
        return self.latency.step(prefills, n_decode, sum_ctx) + seconds

    def _transfers(self) -> float:
        """Seconds of what is to be moved in this step, which is not one of a jump."""
        self.look = True
        out, into = self.host.moved()
        self.moved_s = seconds = (
            self.transfer.seconds(out) + self.transfer.seconds(into) if self.transfer is not None else 0.0
        )
        self.transfer_s += seconds
        return seconds

    # -- admission -------------------------------------------------------------------

    def wants(self, request: Request, hit: int) -> int:
        """Tokens a waiting call has to compute if ``hit`` of its blocks are found in the cache."""
        return request.tokens - self.host.start(request, hit)

    def admit(self, budget: int, prefills: list[tuple[int, int]]) -> None:
        """Admit waiting calls in order; stop at the first that does not fit."""
        kv, running = self.kv, self.running
        while budget > 0 and self.n_waiting and len(running) < self.seqs:
            request = self.first()
            cap = (request.tokens - 1) // BLOCK
            path, hit, used = kv.match(request.ids, request.ends, cap)
            if cap + 1 - used > kv.plain + kv.idle:
                return
            start = self.host.start(request, hit)
            chunk = request.tokens - start
            if chunk > budget:
                if not self.whole:
                    chunk = budget
                elif self.newcomers:
                    return
            budget -= chunk
            heappop(self.waiting)
            self.n_waiting -= 1
            decodes = request.copy > 0 and request.decodes
            self.host.bring_back(request, hit, start)
            if path:
                request.chain = kv.hold(path)
                request.tree = hit
            request.computed = request.hit = start
            self.enter(request)
            self._begin(request, hit, chunk, prefills, decodes)

    def _begin(
        self, request: Request, hit: int, chunk: int, prefills: list[tuple[int, int]], decodes: bool
    ) -> None:
        """Schedule the first ``chunk`` tokens of a call just admitted, which holds ``hit`` blocks."""
        kv, start = self.kv, request.computed
        kv.take(blocks_for(start + chunk) - hit)
        if self.whole:
            self.newcomers.append((request, chunk))
        if not decodes:
            self.schedule_chunk(request, chunk, prefills)
            return
        full = request.tokens // BLOCK
        if full > hit:
            kv.cache(request.chain, request.ids, request.ends, hit, full)
            request.tree = full
        if not self.whole:
            self.go_on(request, self.g)

    def enter(self, request: Request) -> None:
        """Book an admission; what it takes part in counts from here."""
        request.paused, request.swapped = self.paused_s, self.swapped_s
        super().enter(request)

    def go_on(self, request: Request, g: int) -> None:
        """A call that has its KV back decodes again, from step ``g`` on."""
        tokens = request.tokens
        request.decoding = True
        request.g0 = g
        self.n += 1
        self.ctx += tokens + self.g - g
        self.phase[(g + 1 - tokens) & 15] += 1
        request.finish_at = at = g + request.total - tokens
        heappush(self.finishing, (at, request.number, request))
        if self.unit == "token" and request.limit != INF:
            self.arm(request)

    # -- a step of newcomers only ----------------------------------------------------

    def _newcomers_alone(self, prefills: list[tuple[int, int]]) -> None:
        """Run the step of those just admitted; the running ones wait."""
        newcomers, host_s, kv = self.newcomers, self._transfers(), self.kv
        back = [request for request, _ in newcomers if request.computed < request.tokens]
        ctx = sum(request.tokens for request in back) if back else 0
        dt = self.latency.step(prefills, len(back), ctx) + host_s
        if self.record_steps:
            seqs = {request.call.seq for request, _ in newcomers}
            self.record_step(dt, [n for _, n in newcomers], seqs)
        self.block_s += (kv.total - kv.plain - kv.idle) * dt
        self.t += dt
        self.alone_steps += 1
        self.paused_s += dt
        for request, _ in newcomers:
            request.g_in -= 1
            request.paused = self.paused_s
            if host_s:
                request.t_in += host_s
                request.row.swap_s += host_s
        for request in back:
            self.go_on(request, self.g - 1)
        super().start_decoding()  # their books are made up
        for request, _ in newcomers:
            if request.limit != INF:
                self.arm(request)
        newcomers.clear()

    # -- books -----------------------------------------------------------------------

    def service_clock(self) -> float:
        """The clock of ``expiring``: seconds or steps in which decoding calls take part."""
        return self.t - self.paused_s if self.unit == "s" else self.g

    def _settle(self, request: Request) -> None:
        """Leave out of ``t - t_in`` what it took no part in, and what was moving of blocks."""
        swapped = self.swapped_s - request.swapped
        request.t_in += self.paused_s - request.paused + swapped
        request.row.swap_s += swapped
        request.paused, request.swapped = self.paused_s, self.swapped_s

    def served(self, request: Request) -> float:
        """Service so far, in the scheduler's unit."""
        if request.state == RUNNING:
            self._settle(request)
        return super().served(request)

    def start_decoding(self) -> None:
        """Calls whose prefill ended with this step emit a token and decode from now on."""
        for request in self.completing:
            self._settle(request)
        super().start_decoding()

    def stall(self, request: Request, seconds: float) -> None:
        """A running call got nothing in the step just run, of ``seconds``: shift what is implied."""
        request.swapped += self.moved_s
        super().stall(request, seconds)

    def finish(self, request: Request) -> Finished:
        """A call has all its tokens: free it, tell the policy, return its row."""
        self._settle(request)
        self.look = True
        return super().finish(request)

    def unbook(self, request: Request, now: float) -> None:
        """Take a call out of the batch: books, levels, heaps; its blocks stay."""
        self._settle(request)
        self.look = True
        super().unbook(request, now)

    def preempt(self, request: Request, rule: str, *, scheduled: bool = False) -> None:
        """The call waits in its slot; its KV is dropped, or moved to host memory."""
        if self.swapping:
            decodes = request.decoding
            computed = request.tokens + self.g - request.g0 - 1 if decodes else request.computed
            self.host.keep(request, computed, decodes)
        super().preempt(request, rule, scheduled=scheduled)


class WholeRoom(Room):
    """Room where prompts are scheduled whole, in steps of their own: the running want no tokens of it."""

    batch: OptionEngine

    def __init__(self, batch: OptionEngine, renewed: list[Request]) -> None:
        super().__init__(batch, renewed)
        self.budget = batch.budget
        self.reserved = False

    @staticmethod
    def fits(batch: Batch, request: Request) -> bool:
        """Whether there is room without displacing anybody."""
        return has_place(batch, request)

    def find_tokens(self, request: Request) -> bool:
        """The first goes in any case, the others while they fit."""
        if not self.reserved:
            return True
        batch, cap = self.batch, (request.tokens - 1) // BLOCK
        _, hit, _ = batch.kv.match(request.ids, request.ends, cap)
        return batch.wants(request, hit) <= self.budget

    def displace(self, victim: Request) -> None:
        """Preempt ``victim``; it would have taken no tokens."""
        self.slots += 1
        self.batch.preempt(victim, "displace")

    def reserve(self, tokens: int) -> None:
        """A waiting call will want ``tokens``."""
        self.reserved = True
        self.budget -= tokens


def _cut(ids: list[int], ends: list[int], tokens: int) -> list[Segment]:
    """The first ``tokens`` tokens as segments."""
    found: list[Segment] = []
    begin = 0
    for segment, end in zip(ids, ends, strict=True):
        if begin >= tokens:
            break
        if end > begin:
            found.append((segment, min(end, tokens) - begin))
        begin = end
    return found
