"""The simulated engine: vLLM V1's rules (docs/engine.md), lazily decoded.

A decoding call is not touched per token. The engine counts steps (``g``); a
call's context is its context at the end of its prefill plus the steps since;
its finish and its quantum are keys in heaps of step numbers; the steps at
which it needs a new block are its phase modulo 16; the sum of contexts is kept
incrementally. A run of pure decode steps costs one addition a step, everything
else O(changes). ``reference`` does the same one step at a time, bit for bit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from heapq import heappop, heappush

from systems.engines.batch import Batch
from systems.engines.displacement import displace
from systems.engines.tight import tight_step
from vocabulary import BLOCK, INF, EngineView, Finished, Step

_ROUND = 1.5 * 2.0**22  # vocabulary.on_grid, inlined where it runs once a step


class LazyEngine(Batch):
    """One engine on virtual time (systems.protocols.Engine), without options."""

    __slots__ = ()

    name = "sim"

    # -- the host's side -------------------------------------------------------------

    def clock(self) -> float:
        """Start of the next step; INF when idle."""
        return self.t if self.calls else INF

    def results_at(self) -> float:
        """End of the last step run."""
        return self.t

    def horizon(self) -> float:
        """No call finishes before this, if nothing is submitted or aborted."""
        if not self.calls:
            return INF
        if self.n_waiting or self.partial is not None or not self.finishing:
            return self.t
        k = self.finishing[0][0] - self.g  # a stale entry only makes this earlier
        if k <= 1 or self.kv.free() < (k // BLOCK + 1) * self.n:
            return self.t
        a, b, _ = self.latency.decode_line(self.n, self.ctx)
        return self.t + k * ((a + b * self.ctx + _ROUND) - _ROUND)

    def advance(self, until: float) -> bool:
        """Run steps that start before ``until``; True after the first that finishes calls."""
        calls, finishing, expiring = self.calls, self.finishing, self.expiring
        seconds = self.unit == "s"
        while calls and self.t < until:
            self.boundary(until)
            if finishing and finishing[0][0] <= self.g and self._somebody_finishes():
                return True
            if expiring and expiring[0][0] <= (self.t if seconds else self.g):
                self.expire()
        return False

    def collect(self) -> list[Finished]:
        """The end of a step that finished calls: finishes in batch order, then quanta."""
        g, finishing, expiring, done = self.g, self.finishing, self.expiring, []
        while finishing and finishing[0][0] <= g:
            at, number, request = heappop(finishing)
            if request.finish_at == at and request.number == number:
                done.append(self.finish(request))
        if expiring and expiring[0][0] <= (self.t if self.unit == "s" else g):
            self.expire()
        return done

    def _somebody_finishes(self) -> bool:
        """Whether the first entry is still true; entries of calls that left are dropped."""
        g, finishing = self.g, self.finishing
        while finishing and finishing[0][0] <= g:
            if finishing[0][2].finish_at == finishing[0][0]:
                return True
            heappop(finishing)
        return False

    def end_program(self, program: int, now: float) -> None:
        """Forget a program's row."""
        self.scheduler.end(program, now)

    def view(self) -> EngineView:
        """What a router sees."""
        kv = self.kv
        used = kv.total - kv.free()
        return EngineView(self.id, True, len(self.calls), used, kv.total, len(self.running), kv.idle)

    def close(self) -> None:
        """Nothing to release."""

    # -- one boundary and the step(s) behind it --------------------------------------

    def boundary(self, until: float, waiting: int = -1) -> None:
        """Start of a step, and the step; several steps if they are pure decode.

        ``waiting``: how many may be admitted, after policies have acted; -1: they act here.
        The hottest code here: ``run_mixed`` and what is known already (how many
        blocks, how many tokens) are written out, in local variables.
        """
        if waiting < 0:
            if self.n_waiting and self.tracks and self.next_due() <= self.t:
                self.promote()
            # The first entry may be of a call that moved or left; then nobody waits in a better level.
            if self.renewed or (self.n_waiting and self.worst_level > self.waiting[0][0][0]):
                displace(self)
            waiting = self.n_waiting
        kv, partial, need = self.kv, self.partial, self.phase[self.g & 15]
        budget = self.budget - self.n
        if partial is None:
            if need > kv.plain + kv.idle:
                tight_step(self)
                return
            if not waiting:
                self.decode(until, need)
                return
            if need:
                kv.take(need)
            prefills: list[tuple[int, int]] = []
        else:
            computed = partial.computed
            chunk = partial.tokens - computed
            if chunk > budget:
                chunk = budget
            need += (computed + chunk + 15) // BLOCK - (computed + 15) // BLOCK
            if need > kv.plain + kv.idle:
                tight_step(self)
                return
            if need:
                kv.take(need)
            prefills = []
            self.schedule_chunk(partial, chunk, prefills)
            budget -= chunk
        if budget > 0 and waiting:
            self.admit(budget, prefills)
        if not prefills:
            self.decode(until, 0)
            return
        if self.record_steps:
            self.run_mixed(prefills, self.n, self.ctx, self.running)
        else:
            n, ctx = self.n, self.ctx
            dt = self.step_s(prefills, n, ctx)
            self.block_s += (kv.total - kv.plain - kv.idle) * dt
            self.t += dt
            self.g += 1
            self.ctx = ctx + n
            if self.partial is not None and self.unit == "token":
                self.arm(self.partial)
        if self.completing:
            self.start_decoding()

    def admit(self, budget: int, prefills: list[tuple[int, int]]) -> None:
        """Admit waiting calls in order; stop at the first that does not fit."""
        kv, running, seqs = self.kv, self.running, self.seqs
        while budget > 0 and self.n_waiting and len(running) < seqs:
            request = self.first()
            tokens = request.tokens
            cap = (tokens - 1) // BLOCK
            path, hit, used = kv.match(request.ids, request.ends, cap)
            if cap + 1 - used > kv.plain + kv.idle:  # cap + 1 == blocks_for(tokens)
                return
            if self.firm and self.barred(request, path, cap + 1, 0):
                return
            heappop(self.waiting)
            self.n_waiting -= 1
            if path:
                request.chain = kv.hold(path)
                request.tree = hit
            request.computed = request.hit = computed = hit * BLOCK
            self.enter(request)
            chunk = tokens - computed
            if chunk > budget:
                chunk = budget
            budget -= chunk
            kv.take((computed + chunk + 15) // BLOCK - hit)
            self.schedule_chunk(request, chunk, prefills)

    def run_mixed(self, prefills: list[tuple[int, int]], n: int, ctx: int, given: Container[int]) -> None:
        """One step with prefills, or one in which only the calls in ``given`` (seqs) take part.

        ``n`` calls decode with ``ctx`` tokens of context in all.
        """
        dt = self.step_s(prefills, n, ctx)
        if self.record_steps:
            self.record_step(dt, [p[0] for p in prefills], given)
        kv = self.kv
        self.block_s += (kv.total - kv.plain - kv.idle) * dt
        self.t += dt
        self.g += 1
        self.ctx += n
        if self.partial is not None and self.unit == "token":
            self.arm(self.partial)

    def start_decoding(self) -> None:
        """Calls whose prefill ended with this step emit a token and decode from now on."""
        g, t, finishing = self.g, self.t, self.finishing
        for request in self.completing:
            row = request.row
            if request.again:
                row.reprefill_s += t - request.t_in
                if row.t_first_token == INF:
                    row.t_first_token = t
            else:
                row.prefill_s += t - request.t_in
                row.t_first_token = t
            request.t_in = t
            request.decoding = True
            request.tokens = tokens = request.tokens + 1
            request.g0 = g
            self.n += 1
            self.ctx += tokens
            self.phase[(g + 1 - tokens) & 15] += 1
            request.finish_at = at = g + request.total - tokens
            heappush(finishing, (at, request.number, request))
            if self.unit == "token" and request.limit != INF:
                self.arm(request)
        self.completing.clear()

    def decode(self, until: float, need: int) -> None:
        """Pure decode steps until something changes; the first one still lacks ``need`` blocks."""
        g, n, t, ctx, kv = self.g, self.n, self.t, self.ctx, self.kv
        if not n:
            raise RuntimeError(f"engine {self.id}: calls wait at {t} s and none can run")
        free = kv.plain + kv.idle - need
        k, stop = self.steps_ahead(until, free)
        start, left = t, k
        line = self.latency.decode_line
        while True:  # the first step runs in any case: what is due now was looked at
            a, b, limit = line(n, ctx)
            while True:
                t += (a + b * ctx + _ROUND) - _ROUND
                ctx += n
                left -= 1
                if not (left and t < stop and ctx < limit):
                    break
            if not (left and t < stop):
                break
        k -= left
        if self.record_steps:
            self.record_step(t - start, (), self.running)
        more = self._blocks_ahead(k) if k > 1 else 0
        if need + more:
            kv.take(need + more)
        self.block_s += (kv.total - free + 0.5 * more) * (t - start)
        self.g = g + k
        self.t, self.ctx = t, ctx

    def steps_ahead(self, until: float, free: int) -> tuple[int, float]:
        """(steps, time) after which decoding must stop to look again."""
        g, finishing, expiring = self.g, self.finishing, self.expiring
        while finishing[0][2].finish_at != finishing[0][0]:
            heappop(finishing)
        k, stop = finishing[0][0] - g, until
        while expiring and expiring[0][2].expire_at != expiring[0][0]:
            heappop(expiring)
        if expiring or self.n_waiting:
            k, stop = self.until_asked(k, stop)
        if self.record_steps:
            k = 1
        if ((k + 14) // BLOCK) * self.n > free and self._blocks_ahead(k) > free:
            k = self._last_fitting(free)
        return k, stop

    def until_asked(self, k: int, stop: float) -> tuple[int, float]:
        """``k`` steps and time ``stop``, or less where policies may have something to say before."""
        expiring = self.expiring
        if expiring:
            if self.unit == "s":
                stop = min(stop, expiring[0][0])
            else:
                k = min(k, int(expiring[0][0]) - self.g)
        if self.n_waiting:
            if self.tracks:
                stop = min(stop, self.next_due())
            if self.outranked():
                k = 1  # it had room, and a running call took it: displacement goes on at each step
        return k, stop

    def outranked(self) -> bool:
        """Whether the first waiting call is of a better level than some running one."""
        return self.worst_level > self.waiting[0][0][0] and self.worst_level > self.first().order[0]

    def _blocks_ahead(self, k: int) -> int:
        """Blocks that decode steps 1 .. k-1 from here need (step 0 has its own)."""
        whole, rest = divmod(k - 1, BLOCK)
        blocks = whole * self.n
        g, phase = self.g, self.phase
        for i in range(1, rest + 1):
            blocks += phase[(g + i) & 15]
        return blocks

    def _last_fitting(self, free: int) -> int:
        """The number of steps whose blocks fit into ``free``."""
        k = max(1, free // self.n * BLOCK)
        while self._blocks_ahead(k + 1) <= free:
            k += 1
        return k

    def record_step(self, dt: float, chunks: Iterable[int], given: Container[int]) -> None:
        """Note the batch of this step: prefilling calls take their tokens from ``chunks``."""
        tokens = iter(chunks)
        batch = tuple(
            (seq, 1 if request.decoding else next(tokens))
            for seq, request in self.running.items()
            if seq in given
        )
        self.steps.append(Step(self.t, dt, batch, tuple(self.preempted)))
        self.preempted.clear()
