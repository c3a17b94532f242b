"""State of the simulated engine, its slots and its waiting order.

Which call stands where: quanta and demotion, promotion, the queue. ``batch``
adds what happens to a call, ``sim`` adds time.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from math import ceil
from operator import attrgetter

from systems.engines.radix import RadixKV
from systems.engines.request import RUNNING, WAITING, Order, Request
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import BLOCK, INF, Decision, EngineConfig, Slot, Step

_order = attrgetter("order")
_decision = partial(tuple.__new__, Decision)  # several a call: a third of the time of Decision(...)

NOBODY = -(1 << 60)
"""The worst running level where nobody runs."""


class Slots:
    """State of one simulated engine; moves calls between slots and through the waiting order."""

    # More than 30 attributes: without slots, CPython 3.11 looks every one of them up in a dict.
    __slots__ = ("aborted", "admitted", "block_s", "budget", "calls", "completing", "config", "ctx",
                 "decisions", "decode_tokens", "displaced", "evicted", "expiring", "finished", "finishing",
                 "firm", "g", "hit_tokens", "id", "idle_s", "kv", "latency", "levels", "max_model_len",
                 "most_tokens", "n", "n_waiting", "next_due", "partial", "phase", "preempted",
                 "prefill_tokens", "pushed", "query_tokens", "record", "record_steps", "renewed", "running",
                 "scheduler", "seqs", "step_s", "steps", "t", "tracks", "transfer", "unit", "waiting",
                 "worst_level")  # fmt: skip

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        transfer: TransferModel | None = None,
    ) -> None:
        self.id = id
        self.config = config
        self.scheduler = scheduler
        self.latency = latency
        self.transfer = transfer
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
        self.expiring: list[tuple[float, int, Request]] = []  # at a ``service_clock``
        self.pushed = self.admitted = 0
        self.renewed: list[Request] = []  # calls whose quantum ran out at this boundary
        self.preempted: list[int] = []  # at this boundary, if steps are recorded
        self.tracks = scheduler.tracks_wait
        self.unit = scheduler.unit
        self.record = config.record_decisions
        self.record_steps = config.record_steps
        self.next_due = scheduler.next_due
        self.firm = False  # whether newcomers wait for what is kept (``barred``)
        self.step_s = latency.step
        self.most_tokens = config.kv_blocks * BLOCK
        self.max_model_len = config.max_model_len
        self.seqs = config.max_num_seqs
        self.budget = config.max_num_batched_tokens
        self.idle_s = self.block_s = 0.0
        self.hit_tokens = self.query_tokens = self.prefill_tokens = self.decode_tokens = 0
        self.displaced = self.evicted = self.finished = self.aborted = 0

    def served(self, request: Request) -> float:
        """Service so far, in the scheduler's unit."""
        row, running = request.row, request.state == RUNNING
        unit = self.unit
        if unit == "step":
            return row.steps + (self.g - request.g_in if running else 0)
        if unit == "s":
            booked = row.prefill_s + row.reprefill_s + row.decode_s + row.swap_s
            return booked + (self.t - request.t_in if running else 0.0)
        total = row.prefill_tokens + row.reprefill_tokens + request.decoded
        if request.decoding:
            return total + request.tokens - 1 - request.hit + self.g - request.g0
        return total + request.computed - request.hit

    def service_clock(self) -> float:
        """The clock of ``expiring``: seconds or steps in which decoding calls take part."""
        return self.t if self.unit == "s" else self.g

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
            at: float = self.service_clock() + left
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
        now = self.service_clock()
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

    def promote(self) -> None:
        """Anti-starvation: waiting calls take the slots the policy hands out."""
        for call, slot in self.scheduler.due(self.t):
            request = self.calls[call.seq]
            request.row.promotions += slot.level < request.slot.level
            self.take_slot(request, slot, self.served(request))
            self.requeue(request)
            self.note(self.t, request, "promote", slot.key)

    def take_slot(self, request: Request, slot: Slot, served: float) -> None:
        """Move a call to ``slot``; its quantum counts from ``served`` on."""
        request.slot = slot
        request.order = (slot.level, slot.key, request.call.seq)
        request.limit = served + slot.quantum

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

    # -- the waiting queue -----------------------------------------------------------

    def enqueue(self, request: Request) -> None:
        """Put a call into the waiting order."""
        request.state = WAITING
        self.pushed += 1
        self.n_waiting += 1
        heappush(self.waiting, (request.order, self.pushed, request))

    def requeue(self, request: Request) -> None:
        """A waiting call moved: its old entry means nothing any more."""
        self.n_waiting -= 1
        self.enqueue(request)

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
        waiting = self.waiting
        while True:
            order, _, request = waiting[0]
            if request.order is order and request.state == WAITING:
                return request
            heappop(waiting)

    def pop_head(self) -> tuple[Order, int, Request]:
        """Take the entry ``head`` looked at; the call still counts as waiting."""
        return heappop(self.waiting)

    def worst(self) -> Request:
        """The running call that comes last in the order."""
        return max(self.running.values(), key=_order)

    def note(self, time: float, request: Request, rule: str, value: float) -> None:
        """Record a decision, if decisions are recorded."""
        if self.record:
            seq, level = request.call.seq, request.order[0]
            self.decisions.append(_decision((time, self.id, seq, rule, level, value)))
