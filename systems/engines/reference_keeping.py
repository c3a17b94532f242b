"""Retention in the reference engine: docs/engine-options.md, "Retention", block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from systems.engines.reference_job import Job
from systems.engines.reference_kv import Block
from systems.engines.reference_state import EngineState, Prefix
from systems.protocols import Kept, Scheduler
from systems.victims import Victims
from vocabulary import BLOCK, EngineConfig

_COUNTERS = ("pinned", "expired", "given_up", "hits", "released", "dropped_blocks")


@dataclass(slots=True, eq=False)
class Left:
    """What a thread's last call left: its full blocks, and when their content was entered."""

    program: int
    thread: str
    blocks: list[Block]
    entries: list[int]

    def intact(self) -> list[Block]:
        """The first of them, up to one that was overwritten."""
        found: list[Block] = []
        for block, entry in zip(self.blocks, self.entries, strict=True):
            if block.content is None or block.entry != entry:
                break
            found.append(block)
        return found


@dataclass(slots=True, eq=False)
class Pin:
    """Blocks kept for a thread."""

    about: Kept
    blocks: list[Block]


class KeepingState(EngineState):
    """``EngineState`` that can keep what calls left (systems.protocols.Keeping)."""

    def __init__(self, id: int, config: EngineConfig, scheduler: Scheduler) -> None:  # noqa: A002
        super().__init__(id, config, scheduler)
        self.victims: Victims | None = None
        self.firm = False
        self.pins: list[Pin] = []  # longest pinned first
        self._now = 0.0  # start of the step that is being scheduled
        self._left: list[Left] = []  # who left first first
        self._admitted: list[Job] = []  # at this boundary
        self._order: list[Kept] | None = None  # of giving up, once somebody asked at this boundary
        self._kept = dict.fromkeys(_COUNTERS, 0)

    # systems.protocols.Keeping

    def retain(self, program: int, thread: str, until: float, priority: int, now: float) -> int:
        """Keep what the thread's last call left until ``until`` (s) or its next call; blocks kept."""
        before = self._pin_of(program, thread)
        left = self._left_by(program, thread)
        blocks = left.intact() if left is not None and until > now else []
        if blocks:
            self.kv.pin(blocks)
            self.pins.append(Pin(Kept(program, thread, BLOCK * len(blocks), until, priority), blocks))
            self._kept["pinned"] += 1
            self._order = None
        if before is not None:
            self._let_go(before, "released")
        return len(blocks)

    def release(self, program: int, now: float) -> int:  # noqa: ARG002
        """Back to the cache's order; threads released."""
        mine = [pin for pin in self.pins if pin.about.program == program]
        for pin in mine:
            self._let_go(pin, "released")
        return len(mine)

    def drop(self, program: int, now: float) -> int:
        """Release, and evict what it left before all else; blocks moved to the front."""
        self.release(program, now)
        order: list[Block] = []
        for left in self._left:
            if left.program == program:
                for block in reversed(left.intact()):
                    if block in order:
                        order.remove(block)
                    order.append(block)
        moved = self.kv.to_front(order)
        self._kept["dropped_blocks"] += moved
        return moved

    def waiting_tokens(self) -> int:
        """Prompt tokens of the calls that wait here for admission."""
        return sum(job.call.prompt_tokens for job in self.waiting if not job.held)

    def keeping_counts(self) -> dict[str, int]:
        """What became of what was kept, so far."""
        return dict(self._kept)

    def kept_blocks(self) -> list[list[Block]]:
        """The blocks of everything that is kept."""
        return [pin.blocks for pin in self.pins]

    # What the engine tells

    def look(self, now: float) -> None:
        """A step is about to be scheduled: what is past its deadline goes.

        Not what those calls are about to use that wait with no newcomer before them.
        """
        self._now = now
        self._order = None
        back = set()
        for job in sorted((job for job in self.waiting if not job.held), key=lambda job: job.order):
            if self._pin_of(job.call.program, job.call.thread) is None:
                break
            back.add((job.call.program, job.call.thread))
        for pin in sorted(self.pins, key=lambda pin: pin.about.until):
            if pin.about.until <= now and (pin.about.program, pin.about.thread) not in back:
                self._let_go(pin, "expired")

    def over(self, job: Job) -> None:
        """A call has all its tokens, and its blocks still."""
        if not self.config.retains:
            return
        program, thread = job.call.program, job.call.thread
        before = self._pin_of(program, thread)
        if before is not None:
            self._let_go(before, "released")
        self._forget(program, thread)
        full = [block for block in job.blocks if block.content is not None]
        self._left.append(Left(program, thread, full, [block.entry for block in full]))

    def taken_over(self) -> None:
        """A step has been scheduled: what was kept for those admitted to it has served."""
        for job in self._admitted:
            program, thread = job.call.program, job.call.thread
            self._forget(program, thread)
            pin = self._pin_of(program, thread)
            if pin is not None:
                self._kept["hits"] += job.computed > 0 and job.blocks[0] is pin.blocks[0]
                self._let_go(pin, "released")
        self._admitted.clear()

    def end(self, program: int, now: float) -> None:
        """The program is over."""
        self.release(program, now)
        self._left = [left for left in self._left if left.program != program]

    # What calls take

    def admit(self, job: Job, prefix: Prefix, now: float) -> None:
        """It enters the batch with what it found; there is room for the rest of it now."""
        self._make_room(lambda: self.lacking(job, prefix.hits), job)
        super().admit(job, prefix, now)
        self._admitted.append(job)

    def barred(self, job: Job, hits: list[Block], promised: int = 0) -> bool:
        """Whether a newcomer, for whose thread nothing is kept, would take kept blocks while others run."""
        if not self.firm or not self.running or self._pin_of(job.call.program, job.call.thread) is not None:
            return False
        return self.lacking(job, hits) > self.kv.at_once - promised

    def give(self, job: Job, n: int, blocks: int) -> None:
        """``n`` tokens are scheduled: take ``blocks`` for them, and cache what becomes full."""
        self._make_room(lambda: blocks)
        super().give(job, n, blocks)

    def _make_room(self, need: Callable[[], int], job: Job | None = None) -> None:
        """Give up one after the other, last what is kept for ``job`` itself.

        ``need`` grows where the blocks a call is to share are given up.
        """
        while self.pins and self.kv.at_once < need():
            self._let_go(self._next_victim(job), "given_up")

    def _next_victim(self, job: Job | None) -> Pin:
        if self._order is None:
            kept = [pin.about for pin in self.pins]
            named = list(self.victims(kept, self._now)) if self.victims is not None else []
            self._order = named + sorted(kept, key=lambda one: (one.priority, one.until))
        own = self._pin_of(job.call.program, job.call.thread) if job is not None else None
        pins = [self._pin_of(about.program, about.thread) for about in self._order]
        others = [pin for pin in pins if pin is not None and pin is not own]
        pin = others[0] if others else own
        assert pin is not None
        return pin

    def _let_go(self, pin: Pin, why: str) -> None:
        self.pins.remove(pin)
        self.kv.unpin(pin.blocks)
        self._kept[why] += 1

    def _pin_of(self, program: int, thread: str) -> Pin | None:
        mine = (p for p in self.pins if (p.about.program, p.about.thread) == (program, thread))
        return next(mine, None)

    def _left_by(self, program: int, thread: str) -> Left | None:
        return next((left for left in self._left if (left.program, left.thread) == (program, thread)), None)

    def _forget(self, program: int, thread: str) -> None:
        self._left = [left for left in self._left if (left.program, left.thread) != (program, thread)]
