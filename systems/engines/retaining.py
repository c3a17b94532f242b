"""Retention in the simulated engine: what calls left is kept for their threads (systems.protocols.Keeping).

docs/engine-options.md, "Retention". ``retaining(cls)`` makes any of the simulated engines one that keeps;
an engine that is not asked to has nothing of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from systems.engines.host_memory import HostMemory
from systems.engines.kept_kv import KeptKV, Left, top
from systems.engines.radix import Held, Path
from systems.engines.request import HELD, WAITING, Request
from systems.engines.sim import SimEngine
from systems.protocols import Kept, LatencyModel, Scheduler, TransferModel
from systems.victims import Key, Victims, at_the_head, giving_up, key_of
from vocabulary import BLOCK, INF, EngineConfig, Finished, blocks_for

COUNTERS = ("pinned", "expired", "given_up", "hits", "released", "dropped_blocks")


class Pin(NamedTuple):
    """Blocks that are kept, as ``KeptKV.pin`` returned them."""

    about: Kept
    chain: list[Held]


class Pins:
    """What threads left in ``kv``, and what of it is kept.

    ``victims``: who is given up first, None: by deadline; asked once a boundary at most.
    """

    def __init__(self, kv: KeptKV) -> None:
        self.kv = kv
        self.victims: Victims | None = None
        self.pins: dict[Key, Pin] = {}
        self.left: dict[int, dict[str, Left]] = {}  # per program and thread, in the order of leaving
        self.count = dict.fromkeys(COUNTERS, 0)
        self._deadlines: list[tuple[float, int, Pin]] = []
        self.due: dict[Key, Pin] = {}  # past their deadline, earliest first
        self._ties = count()
        self._order: deque[Key] | None = None

    # What calls do

    def leave(self, key: Key, left: Left) -> None:
        """A call of the thread ended, and its blocks are free."""
        threads = self.left.setdefault(key[0], {})
        threads.pop(key[1], None)  # it becomes the last
        if left.blocks:
            threads[key[1]] = left

    def come(self, request: Request) -> bool:
        """The thread's next call has been admitted, and has taken over what it can; whether it was kept."""
        key = caller(request)
        self.left.get(key[0], {}).pop(key[1], None)
        pin = self.pins.get(key)
        if pin is not None:
            if request.hit and request.chain:
                self.count["hits"] += top(request.chain) is top(pin.chain)
            self.let_go(key, "released")
        return pin is not None

    def end(self, program: int) -> None:
        """The program is over."""
        self.release(program)
        self.left.pop(program, None)

    # What the host says

    def retain(self, kept: Kept, now: float) -> int:
        """Keep what is left of what the thread left, ``kept.tokens`` aside; blocks."""
        key = key_of(kept)
        left = self.left.get(kept.program, {}).get(kept.thread)
        runs = self.kv.intact(left) if left is not None and kept.until > now else []
        old = self.pins.pop(key, None)
        blocks = sum(run.n for run in runs)
        if runs:
            pin = Pin(kept._replace(tokens=BLOCK * blocks), self.kv.pin(runs))
            self.pins[key] = pin
            self.count["pinned"] += 1
            if kept.until < INF:
                heappush(self._deadlines, (kept.until, next(self._ties), pin))
        if old is not None:  # after: its blocks may be the same
            self.kv.unpin(old.chain)
            self.count["released"] += 1
        self._order = None
        return blocks

    def release(self, program: int) -> int:
        """Nothing of the program is kept any more; threads whose KV was."""
        keys = [key for key in self.pins if key[0] == program] if program in self.left else []
        for key in keys:
            self.let_go(key, "released")
        return len(keys)

    def drop(self, program: int) -> int:
        """Release, and evict what it left before all else, the thread that left first first; blocks."""
        self.release(program)
        lefts = self.left.get(program, {}).values()
        for left in lefts:
            self.kv.intact(left)  # may cut runs that others have, too
        runs = [run for left in lefts for run in reversed(self.kv.intact(left))]
        blocks = self.kv.to_front(runs)
        self.count["dropped_blocks"] += blocks
        return blocks

    # Room and time

    def deadline(self) -> float:
        """When the next pin's time is over (s); INF for none."""
        deadlines = self._deadlines
        while deadlines and self.pins.get(key_of(deadlines[0][2].about)) is not deadlines[0][2]:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else INF

    def look(self, now: float, waiting: Callable[[], Iterable[tuple[Any, Key]]]) -> bool:
        """A step is about to be scheduled: let go what is past its deadline; whether there was any.

        Not what a call at the head of those that are ``waiting`` (their orders and threads) is about to use.
        """
        self._order, before = None, self.count["expired"]
        while self.deadline() <= now:
            pin = heappop(self._deadlines)[2]
            self.due.pop(key_of(pin.about), None)  # an earlier one of the thread has another place
            self.due[key_of(pin.about)] = pin
        if self.due:
            back = at_the_head(waiting(), self.pins)
            for key, pin in list(self.due.items()):
                if key in back and self.pins.get(key) is pin:
                    continue
                del self.due[key]
                if self.pins.get(key) is pin:
                    self.let_go(key, "expired")
        return self.count["expired"] > before

    def make_room(self, blocks: int, now: float, own: Key | None = None) -> bool:
        """Give up pins, ``own`` last, until so many blocks are free, or none is left; whether any was."""
        kv, before = self.kv, self.count["given_up"]
        if kv.at_once() >= blocks or not self.pins:
            return False
        if self._order is None:
            self._order = deque(giving_up([pin.about for pin in self.pins.values()], self.victims, now))
        order = self._order
        while order and kv.at_once() < blocks:
            if order[0] == own and len(order) > 1:
                order[0], order[1] = order[1], order[0]
            self.let_go(order.popleft(), "given_up")
        return self.count["given_up"] > before

    def let_go(self, key: Key, why: str) -> None:
        """A pin is no more, if there is one."""
        pin = self.pins.pop(key, None)
        if pin is not None:
            self.kv.unpin(pin.chain)
            self.count[why] += 1


class Retaining(SimEngine):
    """A simulated engine that keeps; use ``retaining``. ``newcomers``: admitted at this boundary.

    No ``__slots__``: beside those of any simulated engine they would not fit into one object.
    """

    kv: KeptKV

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        transfer: TransferModel | None = None,
    ) -> None:
        super().__init__(id, config, scheduler, latency, transfer)
        host: HostMemory = getattr(self, "host") if config.host_tier else HostMemory(0)  # noqa: B009
        self.kv = KeptKV(config.kv_blocks, config.prefix_cache, host, self._lacking)
        self.keeping = Pins(self.kv)
        self.newcomers: list[Request] = []
        self.again = False  # what is kept has changed since calls were admitted at this boundary
        self.look = True  # as PacedEngine's

    # systems.protocols.Keeping

    @property
    def victims(self) -> Victims | None:
        """In which order kept KV is given up; None: by priority and deadline."""
        return self.keeping.victims

    @victims.setter
    def victims(self, victims: Victims | None) -> None:
        self.keeping.victims = victims

    def retain(self, program: int, thread: str, until: float, priority: int, now: float) -> int:
        """Keep what the thread's last call left until ``until`` (s) or its next call; blocks kept."""
        self.changed()
        return self.keeping.retain(Kept(program, thread, 0, until, priority), now)

    def release(self, program: int, now: float) -> int:  # noqa: ARG002
        """Back to the cache's order; threads released."""
        self.changed()
        return self.keeping.release(program)

    def drop(self, program: int, now: float) -> int:  # noqa: ARG002
        """Release, and evict what it left before all else; blocks moved to the front."""
        self.changed()
        return self.keeping.drop(program)

    def waiting_tokens(self) -> int:
        """Prompt tokens of the calls that wait here for admission."""
        if not self.n_waiting:
            return 0
        return sum(r.call.prompt_tokens for r in self.calls.values() if r.state == WAITING)

    def keeping_counts(self) -> dict[str, int]:
        """What became of what was kept, so far: COUNTERS."""
        return dict(self.keeping.count)

    # What the engine does otherwise

    def end_program(self, program: int, now: float) -> None:
        """Forget a program's row, and what it left."""
        self.changed()
        self.keeping.end(program)
        super().end_program(program, now)

    def boundary(self, until: float, waiting: int = -1) -> None:
        """Start of a step, and the step: deadlines first."""
        if self.keeping.look(self.t, self._waiting):
            self.changed()
        self.again = False
        super().boundary(until, waiting)

    def admit(self, budget: int, prefills: list[tuple[int, int]]) -> None:
        """Admit waiting calls in order; what was kept for them has then served."""
        super().admit(budget, prefills)
        for request in self.newcomers:
            if self.keeping.come(request):
                self.changed()
        self.newcomers.clear()

    def enter(self, request: Request) -> None:
        """Book an admission, for which the whole call finds room; a held call that resumes has its own."""
        if request.state != HELD:
            self.newcomers.append(request)
            self.keeping.make_room(blocks_for(request.tokens) - request.tree, self.t, caller(request))
        super().enter(request)

    def decode(self, until: float, need: int) -> None:
        """Pure decode steps until something changes; pins are given up for the first of them only."""
        if need > self.kv.at_once():
            self.kv.take(need)
            need = 0
        super().decode(until, need)

    def steps_ahead(self, until: float, free: int) -> tuple[int, float]:
        """(steps, time) after which decoding must look again: at a deadline, and where pins are given up."""
        k, stop = super().steps_ahead(until, free - self.kv.kept)
        if self.again and self.n_waiting:
            k = 1
        return k, min(stop, self.keeping.deadline())

    def finish(self, request: Request) -> Finished:
        """A call has all its tokens: free it, remember what it left, return its row."""
        key = caller(request)
        self.keeping.let_go(key, "released")
        row = super().finish(request)
        self.keeping.leave(key, Left(request.chain, (request.total - 1) // BLOCK if request.chain else 0))
        return row

    # Firm: who waits for what is kept

    def changed(self) -> None:
        """What is kept has changed: those that wait for it are looked at again at the next pass."""
        if self.firm:
            self.look = True
        if self.firm or self.keeping.due:
            self.again = True

    def enqueue(self, request: Request) -> None:
        """A call waits, or waits elsewhere: another may be at the head now."""
        super().enqueue(request)
        if self.keeping.due:
            self.again = True

    def lacking(self, path: Path, blocks: int) -> int:
        """Of ``blocks``, those that a waiting call does not share with calls or with what is kept."""
        pins = self.kv.pins
        return blocks - sum(n for run, n in path if run.refs or run in pins)

    def barred(self, request: Request, path: Path, blocks: int, promised: int) -> bool:
        """Whether a newcomer, for whose thread nothing is kept, would take kept KV while somebody runs."""
        if not self.running or caller(request) in self.keeping.pins:
            return False
        return self.lacking(path, blocks) > self.kv.at_once() - promised

    def _waiting(self) -> list[tuple[Any, Key]]:
        """Order and thread of each call that waits for admission."""
        if not self.n_waiting:
            return []
        return [(r.order, caller(r)) for r in self.calls.values() if r.state == WAITING]

    def _lacking(self, blocks: int) -> None:
        if self.keeping.make_room(blocks, self.t):
            self.changed()


def caller(request: Request) -> Key:
    """Whose call it is."""
    return request.call.program, request.call.thread


_CLASSES: dict[type[SimEngine], type[SimEngine]] = {}


def retaining(base: type[SimEngine]) -> type[SimEngine]:
    """``base`` with retention."""
    if base not in _CLASSES:
        _CLASSES[base] = type(f"Retaining{base.__name__}", (Retaining, base), {})
    return _CLASSES[base]
