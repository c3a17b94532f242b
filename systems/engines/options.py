"""The simulated engine with a host memory and a readable cache (docs/engine-options.md), as lazy as without.

What is implied for a decoding call in ``sim`` is that all seconds since
``t_in`` are its own; here some of them moved blocks. ``swapped_s`` sums those,
so that a call's share is a difference of two readings, taken when somebody
looks at its books (``settle``).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from systems.engines.host_memory import HostMemory, TierKV
from systems.engines.request import RUNNING, Request
from systems.engines.sim import SimEngine
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import BLOCK, INF, Body, Call, EngineConfig, Finished, Segment, Snapshot


class OptionEngine(SimEngine):
    """``SimEngine`` with swap, a host tier, and a cache that the scheduler may read."""

    __slots__ = ("arriving", "host", "moved_s", "swapped_s", "swapping", "tiered", "transfer_s", "whole")

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        transfer: TransferModel | None = None,
    ) -> None:
        super().__init__(id, config, scheduler, latency, transfer)
        self.step_s = self.step_seconds
        self.whole = not config.chunked_prefill
        self.swapping = config.preemption == "swap"
        self.tiered = config.host_tier
        self.host = HostMemory(config.host_blocks)
        if self.tiered:
            self.kv = TierKV(config.kv_blocks, self.host)
        self.swapped_s = 0.0  # transfers in steps that decoding calls took part in
        self.transfer_s = self.moved_s = 0.0  # transfers so far, and in the last step
        self.arriving: tuple[Call, Body] | None = None
        if getattr(scheduler, "reads_cache", False):
            scheduler.attach(self)  # type: ignore[attr-defined]

    # -- the host's side -------------------------------------------------------------

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Queue a call that arrives at ``now``. Raises ValueError if it can never fit."""
        self.arriving = call, body
        super().submit(call, body, snap, now)

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take the call out at a boundary; None if it is not here (any more)."""
        request = self.calls.get(call.seq)
        if request is not None:
            self.host.drop(request)
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
        return {**super().stats(), "swap_s": self.transfer_s, **self.host.totals()}

    # -- a step ----------------------------------------------------------------------

    def decode(self, until: float, need: int) -> None:
        """Pure decode steps until something changes; one only if blocks are moved in it."""
        if self.host.out + self.host.into and self.n:
            if need:
                self.kv.take(need)
            self.run_mixed([], self.n, self.ctx, self.running)
            return
        super().decode(until, need)

    def step_seconds(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """A step that decoding calls take part in, with what is moved in it."""
        seconds = self.latency.step(prefills, n_decode, sum_ctx)
        if self.host.out + self.host.into:
            seconds += self.move()
            self.swapped_s += self.moved_s
        else:
            self.moved_s = 0.0
        return seconds

    def move(self) -> float:
        """Seconds of what is to be moved in this step."""
        out, into = self.host.moved()
        transfer = self.transfer
        seconds = transfer.seconds(out) + transfer.seconds(into) if transfer is not None else 0.0
        self.moved_s = seconds
        self.transfer_s += seconds
        return seconds

    # -- admission -------------------------------------------------------------------

    def wants(self, request: Request, hit: int) -> int:
        """Tokens a waiting call has to compute if ``hit`` of its blocks are found in the cache."""
        return request.tokens - self.host.start(request, hit)

    def admit(self, budget: int, prefills: list[tuple[int, int]]) -> None:
        """Admit waiting calls in order; stop at the first that does not fit."""
        kv, running, before = self.kv, self.running, len(self.running)
        while budget > 0 and self.n_waiting and len(running) < self.seqs:
            request = self.first()
            tokens = request.tokens
            cap = (tokens - 1) // BLOCK
            path, hit, used = kv.match(request.ids, request.ends, cap)
            if cap + 1 - used > kv.plain + kv.idle:
                return
            if self.firm and self.barred(request, path, cap + 1, 0):
                return
            start = self.host.start(request, hit) if request.copy or self.tiered else BLOCK * hit
            chunk = tokens - start
            if chunk > budget:
                if not self.whole:
                    chunk = budget
                elif len(running) > before:
                    return
            budget -= chunk
            heappop(self.waiting)
            self.n_waiting -= 1
            decodes = request.copy > 0 and request.decodes
            if request.copy or start > BLOCK * hit:
                self.host.bring_back(request, hit, start)
            if path:
                request.chain = kv.hold(path)
                request.tree = hit
            request.computed = request.hit = start
            self.enter(request)
            kv.take((start + chunk + 15) // BLOCK - hit)
            if decodes:
                self._return(request)
            else:
                self.schedule_chunk(request, chunk, prefills)

    def _return(self, request: Request) -> None:
        """A call just admitted has all its KV back; what is full is findable again."""
        full = request.tokens // BLOCK
        if full > request.tree:
            self.kv.cache(request.chain, request.ids, request.ends, request.tree, full)
            request.tree = full
        if not self.whole:
            self.go_on(request, self.g)

    def enter(self, request: Request) -> None:
        """Book an admission; what moves from here on counts."""
        request.swapped = self.swapped_s
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

    # -- books -----------------------------------------------------------------------

    def settle(self, request: Request) -> None:
        """Take the time in which blocks moved out of ``t - t_in``."""
        swapped = self.swapped_s - request.swapped
        if swapped:
            request.t_in += swapped
            request.row.swap_s += swapped
            request.swapped = self.swapped_s

    def served(self, request: Request) -> float:
        """Service so far, in the scheduler's unit."""
        if request.state == RUNNING:
            self.settle(request)
        return super().served(request)

    def start_decoding(self) -> None:
        """Calls whose prefill ended with this step emit a token and decode from now on."""
        for request in self.completing:
            self.settle(request)
        super().start_decoding()

    def stall(self, request: Request, seconds: float) -> None:
        """A running call got nothing in the step just run, of ``seconds``: shift what is implied."""
        request.swapped += self.moved_s
        super().stall(request, seconds)

    def finish(self, request: Request) -> Finished:
        """A call has all its tokens: free it, tell the policy, return its row."""
        self.settle(request)
        return super().finish(request)

    def unbook(self, request: Request, now: float) -> None:
        """Take a call out of the batch: books, levels, heaps; its blocks stay."""
        self.settle(request)
        super().unbook(request, now)

    def preempt(self, request: Request, rule: str, *, scheduled: bool = False) -> None:
        """The call waits in its slot; its KV is dropped, or moved to host memory."""
        if self.swapping:
            decodes = request.decoding
            computed = request.tokens + self.g - request.g0 - 1 if decodes else request.computed
            self.host.keep(request, computed, decodes)
        super().preempt(request, rule, scheduled=scheduled)


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
