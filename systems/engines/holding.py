"""Preemption by holding in the simulated engine: a displaced call keeps its blocks and waits.

docs/engine-options.md, "Preemption hold". Held calls stand in an order of their
own, from both ends: the first resumes, the last gives up its blocks.
"""

from __future__ import annotations

from heapq import heappop, heappush

from systems.engines.displacement import Room, outranks
from systems.engines.paced import PacedEngine
from systems.engines.radix import Path
from systems.engines.request import GONE, HELD, WAITING, Order, Request
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import BLOCK, Call, EngineConfig, Finished, blocks_for

Entry = tuple[Order, int, Request]


class HoldEngine(PacedEngine):
    """``PacedEngine`` whose displaced calls keep their blocks while nobody better needs them."""

    __slots__ = ("first_held", "last_held", "n_held", "restarted")

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        transfer: TransferModel | None = None,
    ) -> None:
        super().__init__(id, config, scheduler, latency, transfer)
        self.n_held = 0
        self.first_held: list[Entry] = []  # smallest order first
        self.last_held: list[tuple[tuple[int, float, int], int, Order, Request]] = []  # largest first
        self.restarted: list[Request] = []  # resumed at this boundary in the middle of their prefill

    def horizon(self) -> float:
        """No call finishes before this: one that is held may resume at the next step, almost done."""
        return self.t if self.n_held else super().horizon()

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take the call out at a boundary; None if it is not here (any more)."""
        request = self.calls.get(call.seq)
        if request is not None and request.state == HELD:
            self._lose(request)
            self.n_waiting += 1  # as which it leaves
        return super().abort(call, now)

    # -- one boundary ----------------------------------------------------------------

    def rearrange(self) -> None:
        """At a pass: promote, secure the blocks of the running, then hold and resume."""
        if self.idle_calls() and self.tracks and self.next_due() <= self.t:
            self.promote()
        self.protect()
        if self.n_held or self.renewed or (self.n_waiting and self.outranked()):
            _visit(self)

    def protect(self) -> None:
        """Held calls give way to the running, whatever their order."""
        if self.n_held:
            room = HoldRoom(self, [])
            while room.spare() < 0 and (held := self.worst_held()) is not None:
                self.evict_held(held)

    def go(self, until: float, waiting: int) -> None:
        """The step(s) from here; those who resumed in mid-prefill have their blocks for sure."""
        if not self.restarted:
            super().go(until, waiting)
            return
        budget = self.budget - self.n
        prefills: list[tuple[int, int]] = []
        self.kv.take(self.phase[self.g & 15])
        prefilling = [self.partial] if self.partial is not None else []
        for request in (*prefilling, *self.restarted):
            computed = request.computed
            chunk = min(request.tokens - computed, budget)
            self.kv.take(blocks_for(computed + chunk) - blocks_for(computed))
            self.schedule_chunk(request, chunk, prefills)
            budget -= chunk
        self.restarted.clear()
        if waiting:
            self.admit(budget, prefills)
        self.run_mixed(prefills, self.n, self.ctx, self.running)
        self.start_decoding()

    def between(self) -> None:
        """Between passes nobody moves, but held calls still give way."""
        self.protect()

    def idle_calls(self) -> int:
        """Calls here that are not running."""
        return self.n_waiting + self.n_held

    def steps_ahead(self, until: float, free: int) -> tuple[int, float]:
        """(steps, time) after which decoding must stop to look again."""
        k, stop = super().steps_ahead(until, free)
        return self.until_asked(k, stop) if self.n_held else (k, stop)

    # -- the held --------------------------------------------------------------------

    def hold(self, request: Request) -> None:
        """A running call waits with its blocks."""
        decodes = request.decoding
        self.unbook(request, self.t)
        request.decodes = decodes
        full = request.computed // BLOCK
        if full > request.tree:
            self.kv.cache(request.chain, request.ids, request.ends, request.tree, full)
            request.tree = full
        self._file(request)
        self.count_preemption(request, "hold")
        self.tell_stop(request)

    def _file(self, request: Request) -> None:
        if not self.n_held:
            self.first_held.clear()
            self.last_held.clear()
        request.state = HELD
        self.n_held += 1
        self.pushed += 1
        order = request.order
        level, key, seq = order
        heappush(self.first_held, (order, self.pushed, request))
        heappush(self.last_held, ((-level, -key, -seq), self.pushed, order, request))

    def requeue(self, request: Request) -> None:
        """A waiting call moved: its old entry means nothing any more."""
        if request.state == HELD:
            self.n_held -= 1
            self._file(request)
        else:
            super().requeue(request)

    def next_held(self) -> Request | None:
        """The first of the held in order, None if there is none."""
        held = self.first_held
        while held:
            order, _, request = held[0]
            if request.order is order and request.state == HELD:
                return request
            heappop(held)
        return None

    def worst_held(self, behind: Request | None = None) -> Request | None:
        """The last of the held in order, if it comes after ``behind``."""
        held = self.last_held
        while held:
            _, _, order, request = held[0]
            if request.order is order and request.state == HELD:
                return request if behind is None or order > behind.order else None
            heappop(held)
        return None

    def resume(self, request: Request) -> None:
        """A held call is the last of the running, and goes on where it was."""
        self.n_held -= 1
        self.enter(request)
        self.look = True
        if request.decodes:
            self.go_on(request, self.g)
        else:
            self.restarted.append(request)

    def evict_held(self, request: Request) -> None:
        """A held call loses its blocks; it waits already."""
        self._lose(request)
        request.again = True
        self.enqueue(request)
        self.count_preemption(request, "evict")

    def _lose(self, request: Request) -> None:
        self.n_held -= 1
        self.look = True
        request.state = GONE
        self.give_back(request, request.computed)


class HoldRoom(Room):
    """Room in which held calls compete with the others for a place."""

    batch: HoldEngine

    def __init__(self, batch: HoldEngine, renewed: list[Request]) -> None:
        super().__init__(batch, renewed)
        self.whole = batch.whole
        self.places = 0
        self.chunks: dict[Request, int] = {}  # of the running in mid-prefill
        self.grown = batch.phase[batch.g & 15]
        if self.whole:
            self.budget = batch.budget
        if batch.partial is not None:
            self.chunks[batch.partial] = self.chunk
            self.grown += self.growth(batch.partial)

    def growth(self, running: Request) -> int:
        """New blocks of a running call in this step."""
        if running.decoding:
            return int((running.tokens + self.batch.g - running.g0) % BLOCK == 1)
        computed = running.computed
        return blocks_for(computed + self.chunks[running]) - blocks_for(computed)

    def spare(self) -> int:
        """Free blocks, net of reservations and of what the running take in this step."""
        return self.batch.kv.free() - self.promised - self.grown

    def find_tokens(self, request: Request) -> bool:
        """Whether the step has tokens for ``request``, perhaps at the expense of the last in mid-prefill."""
        if self.whole:
            return request.state == HELD or not self.places or self.wants(request) <= self.budget
        if self.budget > 0:
            return True
        last = next(reversed(self.batch.running.values()), None)
        if last is None or last.decoding or not outranks(request, last):
            return False
        self.displace(last)
        return True

    def wants(self, request: Request) -> int:
        """Tokens a waiting call has to compute."""
        batch, cap = self.batch, (request.tokens - 1) // BLOCK
        return batch.wants(request, batch.kv.match(request.ids, request.ends, cap)[1])

    def need(self, request: Request) -> int:
        """Free blocks that it takes to run ``request`` to the end of its prefill."""
        if request.state == HELD:
            return blocks_for(request.tokens) - blocks_for(request.computed)
        cap = (request.tokens - 1) // BLOCK
        return cap + 1 - self.batch.kv.match(request.ids, request.ends, cap)[2]

    def short(self, request: Request) -> bool:
        """Whether blocks lack to run ``request`` to the end of its prefill, or are kept for others."""
        if self.need(request) > self.spare():
            return True
        if not self.batch.firm or request.state == HELD:
            return False
        return self.batch.barred(request, *self.found(request), self.unkept + self.grown)

    def found(self, request: Request) -> tuple[Path, int]:
        """What the cache has of a waiting call, and its blocks in all."""
        cap = (request.tokens - 1) // BLOCK
        return self.batch.kv.match(request.ids, request.ends, cap)[0], cap + 1

    def displace(self, victim: Request) -> None:
        """Hold ``victim``; what it would have taken in this step is free."""
        self.slots += 1
        self.grown -= self.growth(victim)
        chunk = self.chunks.pop(victim, 1)
        if not self.whole:
            self.budget += chunk
        self.batch.hold(victim)
        if victim in self.batch.restarted:
            self.batch.restarted.remove(victim)

    def make(self, request: Request) -> bool:
        """Find tokens, a place and blocks for a call, held or not; False to stop."""
        if not self.find_tokens(request):
            return False
        if self.slots <= 0 and self.may_grow(request):
            self.displace(self.worst())
        if self.slots <= 0:
            return False
        while self.short(request):
            if not self.find_block(request):
                return False
        self.slots -= 1
        if request.state == HELD:
            self.resume(request)
        else:
            self.promised += self.need(request)
            if self.batch.firm:
                self.unkept += self.batch.lacking(*self.found(request))
            self.places += 1
            tokens = self.wants(request)
            self.budget -= tokens if self.whole else min(tokens, self.budget)
        return True

    def find_block(self, request: Request) -> bool:
        """Evict the worst held call behind ``request``, else hold a running one that it outranks."""
        held = self.batch.worst_held(request)
        if held is not None:
            self.batch.evict_held(held)
            return True
        if not self.may_grow(request):
            return False
        self.displace(self.worst())
        return True

    def resume(self, request: Request) -> None:
        """``request`` runs again."""
        self.batch.resume(request)
        if not request.decoding:
            self.chunks[request] = min(request.tokens - request.computed, self.budget)
        if not self.whole:
            self.budget -= self.chunks.get(request, 1)
        self.grown += self.growth(request)


def _visit(engine: HoldEngine) -> None:
    """Give calls that wait, held or not, their places in order; stop at the first that finds none."""
    renewed, engine.renewed = engine.renewed, []
    room = HoldRoom(engine, renewed)
    looked: list[tuple[list[Entry], Entry]] = []
    while (queue := _first_queue(engine)) is not None:
        entry = heappop(queue)
        looked.append((queue, entry))
        if not room.make(entry[2]):
            break
    for queue, entry in looked:
        if entry[2].state == (WAITING if queue is engine.waiting else HELD):
            heappush(queue, entry)
    for request in renewed:
        request.renewed = False


def _first_queue(engine: HoldEngine) -> list[Entry] | None:
    """The queue whose head is first in order: the waiting or the held ones; None if both are empty."""
    waiting, held = engine.head(), engine.next_held()
    if held is None or (waiting is not None and waiting.order < held.order):
        return engine.waiting if waiting is not None else None
    return engine.first_held
