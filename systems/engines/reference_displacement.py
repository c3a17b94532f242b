"""Who has to go before the step: displacement (docs/engine.md) and hold (docs/engine-options.md)."""

from __future__ import annotations

from systems.engines.reference_job import Batch, Job, order_of
from systems.engines.reference_state import EngineState
from vocabulary import blocks_for


class Displacement:
    """One pass over the waiting calls; what it may still hand out: places, tokens, blocks.

    ``wants`` are the tokens the running calls would get in this step, ``reserved``
    the blocks and ``places`` the number of waiting calls that found room.
    """

    def __init__(self, state: EngineState, batch: Batch) -> None:
        self.state = state
        self.batch = batch
        self.chunked = state.config.chunked_prefill
        self.slots = state.config.max_num_seqs - len(state.running)
        self.budget = state.config.max_num_batched_tokens
        self.reserved = 0
        self.unkept = 0  # of these, blocks that are not kept
        self.places = 0
        self.wants: dict[Job, int] = {}
        for job in state.running:
            self.run_with(job)

    def run_with(self, job: Job) -> None:
        """``job`` is among the running; without chunks those want nothing of the budget."""
        self.wants[job] = min(job.tokens - job.computed, self.budget) if self.chunked else 0
        self.budget -= self.wants[job]

    def protect(self) -> None:
        """What must be done for the running at every boundary: nothing here."""

    def run(self) -> None:
        """Visit the waiting calls in order, victims included; stop at the first that gets no room."""
        job = min(self.state.waiting, key=order_of, default=None)
        while job is not None and self.place(job):
            passed = job.order
            behind = (j for j in self.state.waiting if j.order > passed)
            job = min(behind, key=order_of, default=None)

    def place(self, job: Job) -> bool:
        """Preempt what ``job`` may displace until it fits, and reserve its place; False to stop."""
        if self.victim(job) is None or not self.find_tokens(job):
            return False
        while self.slots <= 0 or self.short(job):
            victim = self.victim(job)
            if victim is None:
                return False
            self.remove(victim)
        self.reserve(job)
        return True

    def victim(self, job: Job) -> Job | None:
        """The worst running call, if ``job`` outranks it."""
        worst = self.state.worst()
        return worst if worst is not None and job.outranks(worst) else None

    def find_tokens(self, job: Job) -> bool:
        """Whether the step has tokens for ``job``, perhaps at the expense of a call in mid-prefill."""
        if not self.chunked:
            return not self.places or self.tokens(job) <= self.budget
        if self.budget > 0:
            return True
        last = self.state.running[-1] if self.state.running else None
        if last is None or not last.prefilling or not job.outranks(last):
            return False
        self.remove(last)
        return True

    def tokens(self, job: Job) -> int:
        """What a waiting call would have to compute."""
        return job.tokens - self.state.look_up(job).tokens

    def need(self, job: Job) -> int:
        """Free blocks that admitting ``job`` whole takes."""
        return self.state.need(job, self.state.look_up(job).hits)

    def short(self, job: Job) -> bool:
        """Whether blocks lack for ``job``, or are kept for others."""
        return self.need(job) > self.spare or self.barred(job, self.unkept)

    def barred(self, job: Job, promised: int) -> bool:
        """Whether it is a newcomer that what is kept stops."""
        return self.state.barred(job, self.state.look_up(job).hits, promised)

    @property
    def spare(self) -> int:
        """Free blocks, net of reservations."""
        return self.state.kv.free - self.reserved

    def reserve(self, job: Job) -> None:
        """``job`` has found room."""
        self.slots -= 1
        self.places += 1
        self.reserved += self.need(job)
        self.unkept += self.state.lacking(job, self.state.look_up(job).hits)
        self.budget -= min(self.tokens(job), self.budget) if self.chunked else self.tokens(job)

    def remove(self, victim: Job) -> None:
        """A running call leaves: its place and its tokens are free."""
        self.slots += 1
        self.budget += self.wants[victim]
        self.state.preempt(victim, self.batch, "displace")


class Holding(Displacement):
    """Displacement that keeps the victims' KV: held calls compete with the waiting ones for a place."""

    def protect(self) -> None:
        """Held calls give way to the running, whatever their order."""
        while self.spare < 0 and (held := self.state.worst_held()) is not None:
            self.state.evict_held(held, self.batch)

    @property
    def spare(self) -> int:
        """Free blocks, net of reservations and of what the running calls take in this step."""
        return super().spare - self.grown

    @property
    def grown(self) -> int:
        """What the running calls take in this step."""
        return sum(self.growth(job) for job in self.state.running)

    def growth(self, job: Job) -> int:
        """New blocks of a running call; without chunks, those of its next token."""
        n = self.wants[job] if self.chunked else 1
        return blocks_for(job.computed + n) - len(job.blocks)

    def place(self, job: Job) -> bool:
        """Find tokens, a place and blocks for a call, held or not; False to stop."""
        if not (job.held and not self.chunked) and not self.find_tokens(job):
            return False
        if self.slots <= 0 and (victim := self.victim(job)) is not None:
            self.remove(victim)
        if self.slots <= 0:
            return False
        while self.short(job):
            if not self.find_block(job):
                return False
        if job.held:
            self.slots -= 1
            self.state.resume(job, self.batch.now)
            self.run_with(job)
        else:
            self.reserve(job)
        return True

    def barred(self, job: Job, promised: int) -> bool:
        """A held call goes on, and is no newcomer."""
        return not job.held and super().barred(job, promised + self.grown)

    def need(self, job: Job) -> int:
        """Free blocks to run ``job`` to the end of its prefill."""
        return blocks_for(job.tokens) - len(job.blocks) if job.held else super().need(job)

    def find_block(self, job: Job) -> bool:
        """Evict the worst held call behind ``job``, else hold a running one that it outranks."""
        held = self.state.worst_held(job)
        if held is not None:
            self.state.evict_held(held, self.batch)
            return True
        victim = self.victim(job)
        if victim is not None:
            self.remove(victim)
        return victim is not None

    def remove(self, victim: Job) -> None:
        """A running call leaves with its blocks."""
        self.slots += 1
        self.budget += self.wants[victim]
        self.state.hold(victim, self.batch)
