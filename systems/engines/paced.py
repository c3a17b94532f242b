"""The simulated engine where not every call takes part in every step, nor every boundary is for policies.

Chunked prefill off and scheduling every N steps (docs/engine-options.md). ``g``
counts the steps that decoding calls take part in, ``paused_s`` sums the seconds
of the others; passes come every N steps, so those that nobody needs are skipped
by counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from systems.engines.batch import Batch
from systems.engines.displacement import Room, displace, has_place
from systems.engines.options import OptionEngine
from systems.engines.request import Request
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import BLOCK, INF, Body, Call, EngineConfig, Finished, Snapshot


class PacedEngine(OptionEngine):
    """``OptionEngine`` with whole prompts in steps of their own, and passes every N steps."""

    __slots__ = ("alone_steps", "every", "look", "passed", "paused_s", "room")

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        transfer: TransferModel | None = None,
    ) -> None:
        super().__init__(id, config, scheduler, latency, transfer)
        self.every = config.schedule_every
        self.passed = 0  # the step that the last pass started
        self.look = True  # whether the next pass may find something changed for those that wait
        self.room: type[Room] = WholeRoom if self.whole else Room
        self.alone_steps = 0  # steps of newcomers only
        self.paused_s = 0.0

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Queue a call that arrives at ``now``. Raises ValueError if it can never fit."""
        super().submit(call, body, snap, now)
        self.look = True

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take the call out at a boundary; None if it is not here (any more)."""
        self.look = True
        return super().abort(call, now)

    def stats(self) -> dict[str, float]:
        """Totals since the start; seconds, tokens, blocks, counts."""
        return {**super().stats(), "steps": self.g + self.alone_steps}

    # -- one boundary ----------------------------------------------------------------

    def boundary(self, until: float, waiting: int = 0) -> None:
        """Start of a step, and the step; policies act, and calls are admitted, only at a pass."""
        if self.every > 1 and self.running and not self._is_pass():
            self.between()
            self.go(until, 0)
            return
        self.passed = self.g + self.alone_steps
        self.look = False
        self.rearrange()
        waiting = self.n_waiting
        if self.whole and waiting:
            if self._newcomers_alone():
                return
            waiting = 0
        self.go(until, waiting)

    def go(self, until: float, waiting: int) -> None:
        """The step(s) from here: the running calls, then the first of ``waiting`` ones (0: admit nobody)."""
        super().boundary(until, waiting)

    def _is_pass(self) -> bool:
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

    def step_seconds(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """A step that decoding calls take part in, with what is moved in it."""
        self.look = True
        return super().step_seconds(prefills, n_decode, sum_ctx)

    # -- a step of newcomers only ----------------------------------------------------

    def _newcomers_alone(self) -> bool:
        """Admit calls and run the step of those; the running ones wait. False if nobody came."""
        prefills: list[tuple[int, int]] = []
        before = len(self.running)
        self.admit(self.budget, prefills)
        count = len(self.running) - before
        if not count:
            return False
        newcomers = list(islice(reversed(self.running.values()), count))[::-1]
        back = [request for request in newcomers if request.computed < request.tokens]
        ctx = sum(request.tokens for request in back) if back else 0
        host_s = self.move()
        dt = self.latency.step(prefills, len(back), ctx) + host_s
        if self.record_steps:
            seqs = {request.call.seq for request in newcomers}
            self.record_step(dt, [request.tokens - request.hit for request in newcomers], seqs)
        kv = self.kv
        self.block_s += (kv.total - kv.plain - kv.idle) * dt
        self._pass_by(dt)
        for request in newcomers:
            request.g_in -= 1
            request.paused = self.paused_s
            if host_s:
                request.t_in += host_s
                request.row.swap_s += host_s
        for request in back:
            self.go_on(request, self.g - 1)
        self.start_decoding()
        for request in newcomers:
            if request.limit != INF:
                self.arm(request)
        return True

    def _pass_by(self, seconds: float) -> None:
        """A step that those who decode take no part in."""
        self.t += seconds
        self.paused_s += seconds
        self.alone_steps += 1
        self.look = True

    # -- books -----------------------------------------------------------------------

    def enter(self, request: Request) -> None:
        """Book an admission; what it takes part in counts from here."""
        request.paused = self.paused_s
        super().enter(request)

    def service_clock(self) -> float:
        """The clock of ``expiring``: seconds or steps in which decoding calls take part."""
        return self.t - self.paused_s if self.unit == "s" else self.g

    def settle(self, request: Request) -> None:
        """Take what it took no part in, and the time in which blocks moved, out of ``t - t_in``."""
        paused = self.paused_s - request.paused
        if paused:
            request.t_in += paused
            request.paused = self.paused_s
        super().settle(request)

    def finish(self, request: Request) -> Finished:
        """A call has all its tokens: free it, tell the policy, return its row."""
        self.look = True
        return super().finish(request)

    def unbook(self, request: Request, now: float) -> None:
        """Take a call out of the batch: books, levels, heaps; its blocks stay."""
        self.look = True
        super().unbook(request, now)


class WholeRoom(Room):
    """Room where prompts are scheduled whole, in steps of their own: the running want no tokens of it."""

    def __init__(self, batch: Batch, renewed: list[Request]) -> None:
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
