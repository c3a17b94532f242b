"""The reference engine: docs/engine.md and docs/engine-options.md, one step at a time, dumb on purpose.

It defines what the lazy engine must reproduce bit for bit, so it favours the
order and the words of the documents over speed: every step looks at every
call, every look-up spells out the whole prefix.
"""

from __future__ import annotations

from typing import Any, cast

from systems.engines.reference_displacement import Displacement, Holding
from systems.engines.reference_job import NO_SLOT, Batch, Job, order_of
from systems.engines.reference_keeping import KeepingState
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import (
    GRID,
    INF,
    Body,
    Call,
    EngineConfig,
    EngineView,
    Finished,
    Snapshot,
    Step,
    blocks_for,
)


class ReferenceEngine(KeepingState):
    """One engine on virtual time, stepped one step at a time (systems.protocols.Engine).

    Without ``transfer``, moving KV to and from host memory takes no time.
    Raises ValueError for a scheduler whose unit is not step, s or token.
    """

    name = "reference"

    def __init__(
        self,
        id: int,  # noqa: A002
        config: EngineConfig,
        scheduler: Scheduler,
        latency: LatencyModel,
        transfer: TransferModel | None = None,
    ) -> None:
        if scheduler.unit not in ("step", "s", "token"):
            raise ValueError(
                f"scheduler {scheduler.name!r} counts service in {scheduler.unit!r}; use step, s or token"
            )
        super().__init__(id, config, scheduler)
        self.latency = latency
        self.transfer = transfer
        self.steps: list[Step] = []
        self._clock = 0.0  # end of the last step, or when the first call came after it
        self._end = 0.0  # end of the last step
        self._batch = Batch(0.0, 0, [])  # of the last step
        self._seconds = 0.0  # its length, less _moving
        self._moving = 0.0  # what moving KV to and from the host added to it
        self._since = config.schedule_every  # steps since the last pass, the one it started included
        self._busy_s = 0.0
        self._swap_s = 0.0
        self._kv_grid = 0  # blocks in use x step length in units of the grid: exact as an integer
        if getattr(scheduler, "reads_cache", False):
            cast(Any, scheduler).attach(self)

    # The host's side

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Take a call in at ``now``. Raises ValueError if it can never fit."""
        self._refuse_oversized(call, body)
        if not self.jobs():
            self._clock = max(now, self._end)
        job = Job(call, body, NO_SLOT, Finished(call, self.id, now))
        self.waiting.append(job)  # before the scheduler is asked: it may want to see the cached prefix
        job.take(self.scheduler.arrive(call, snap, now))
        self.decide(now, job, "arrive", job.slot.key)

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take ``call`` out at the boundary at ``now``; None if it is not here."""
        job = next((j for j in self.jobs() if j.call.seq == call.seq), None)
        if job is None:
            return None
        self.leave(job)
        usage = job.close(now)
        job.row.aborted = True
        self.count["calls_aborted"] += 1
        self.decide(now, job, "abort", usage.served)
        self.scheduler.abort(call, usage, now)
        return job.row

    def clock(self) -> float:
        """When the next step starts; INF without calls."""
        return self._clock if self.jobs() else INF

    def horizon(self) -> float:
        """No call finishes before this time: here simply the start of the next step."""
        return self.clock()

    def advance(self, until: float) -> bool:
        """Run the steps that start before ``until``; True after the first that finishes calls."""
        while self.clock() < until:
            self._start_step()
            if any(self._is_last(job, n) for job, n in self._batch.tokens.items()):
                return True
            self.collect()
        return False

    def collect(self) -> list[Finished]:
        """The end of the step: tokens appear, calls finish, then quanta expire."""
        given = self._batch.tokens.items()
        finished = [job.row for job, n in given if self._end_step(job, n)]
        if self._is_pass:
            self._expire()
        return finished

    def results_at(self) -> float:
        """End of the last step run."""
        return self._end

    def end_program(self, program: int, now: float) -> None:
        """The program is over."""
        self.end(program, now)
        self.scheduler.end(program, now)

    def view(self) -> EngineView:
        """What a router sees now."""
        calls, running = len(self.jobs()), len(self.running)
        return EngineView(self.id, True, calls, self.kv.used, self.kv.total, running, self.kv.cached_free)

    def stats(self) -> dict[str, float]:
        """Totals so far: counts, seconds, tokens, blocks and block-seconds."""
        return {
            **self.count,
            "busy_s": self._busy_s,
            "swap_s": self._swap_s,
            "evicted_blocks": self.kv.evicted,
            "host_in_blocks": self.host.entered,
            "host_dropped_blocks": self.host.dropped,
            "kv_block_seconds": self._kv_grid * GRID,
        }

    def close(self) -> None:
        """Nothing to release."""

    # One boundary and the step after it

    @property
    def _is_pass(self) -> bool:
        """Whether policies may act at the boundary that comes next."""
        return not self.running or self._since >= self.config.schedule_every

    def _start_step(self) -> None:
        preempted: list[int] = []
        batch = self._schedule(preempted)
        while not batch.tokens:  # the first running call preempted itself: the boundary repeats
            batch = self._schedule(preempted)
        prefills = [(n, job.computed) for job, n in batch.tokens.items() if job.prefilling]
        contexts = [job.tokens for job in batch.tokens if not job.prefilling]
        self._batch = batch
        self._seconds = self.latency.step(prefills, len(contexts), sum(contexts))
        self._moving = self._transfer()
        self._since = 1 if batch.is_pass else self._since + 1
        self._record(batch)
        self._clock = self._end = batch.now + self._seconds + self._moving

    def _transfer(self) -> float:
        """Seconds for the blocks that move since the step before."""
        out, back = self.moved_out, self.moved_in
        self.moved_out = self.moved_in = 0
        return self.transfer.seconds(out) + self.transfer.seconds(back) if self.transfer else 0.0

    @staticmethod
    def _is_last(job: Job, n: int) -> bool:
        """Whether these ``n`` tokens bring the last one of the reply."""
        done = job.computed + n == job.tokens
        return done and job.row.output_tokens + 1 == job.body.output_tokens

    def _schedule(self, preempted: list[int]) -> Batch:
        """Who gets how many tokens in the step that starts now, if anybody gets some."""
        batch = Batch(self._clock, self.config.max_num_batched_tokens, preempted, self._is_pass)
        self.look(batch.now)
        if batch.is_pass:
            self._promote(batch.now)
        displacement = (Holding if self.config.preemption == "hold" else Displacement)(self, batch)
        displacement.protect()
        if batch.is_pass:
            displacement.run()
            for job in self.jobs():
                job.renewed = False
        if self.config.chunked_prefill:
            self._schedule_running(batch)
            if batch.is_pass and not batch.evicted:
                self._admit(batch)
        else:
            if batch.is_pass:
                self._admit(batch)
            if not batch.tokens:
                self._schedule_running(batch)
        self.taken_over()
        return batch

    def _promote(self, now: float) -> None:
        if not self.scheduler.tracks_wait or self.scheduler.next_due() > now:
            return
        for call, slot in self.scheduler.due(now):
            job = next(job for job in self.waiting if job.call is call)
            job.row.promotions += slot.level < job.slot.level
            job.take(slot)
            self.decide(now, job, "promote", slot.key)

    def _schedule_running(self, batch: Batch) -> None:
        todo = list(self.running)
        for job in todo:
            if batch.budget <= 0:
                return
            if job not in self.running:  # preempted for somebody before it
                continue
            n = min(job.tokens - job.computed, batch.budget)
            need = blocks_for(job.computed + n) - len(job.blocks)
            while need > self.kv.free:
                worst = max(self.running, key=order_of)
                batch.drop(worst)
                batch.evicted = True
                self.preempt(worst, batch, "evict")
                if worst is job:
                    return
            self.give(job, n, need)
            batch.put(job, n)

    def _admit(self, batch: Batch) -> None:
        whole = not self.config.chunked_prefill
        while batch.budget > 0 and len(self.running) < self.config.max_num_seqs:
            job = min((job for job in self.waiting if not job.held), key=order_of, default=None)
            if job is None:
                return
            prefix = self.look_up(job)
            n = job.tokens - prefix.tokens
            if whole and batch.tokens and n > batch.budget:
                return
            if self.need(job, prefix.hits) > self.kv.free or self.barred(job, prefix.hits):
                return
            n = n if whole else min(n, batch.budget)
            self.admit(job, prefix, batch.now)
            self.give(job, n, blocks_for(job.computed + n) - len(job.blocks))
            batch.put(job, n)

    # The end of a step

    def _end_step(self, job: Job, n: int) -> bool:
        """Account ``n`` tokens of ``job``; True if it is finished."""
        row = job.row
        self.count["computed_prefill_tokens" if job.prefilling else "decode_tokens"] += n
        job.charge(n, self._seconds, self._moving, self.scheduler.unit)
        job.computed += n
        if job.computed < job.tokens:
            return False
        job.prefilling = False
        row.output_tokens += 1
        row.t_first_token = min(row.t_first_token, self._end)
        if row.output_tokens < job.body.output_tokens:
            return False
        self._finish(job)
        return True

    def _finish(self, job: Job) -> None:
        self.over(job)
        self.leave(job)
        usage = job.close(self._end)
        self.count["calls_finished"] += 1
        self.decide(self._end, job, "finish", usage.served)
        self.scheduler.finish(job.call, usage, self._end)

    def _expire(self) -> None:
        for job in self.running:
            if not job.expired:
                continue
            job.renewed = True
            slot = self.scheduler.expire(job.call, job.row.served, self._end)
            job.row.demotions += slot.level > job.slot.level
            job.take(slot)
            self.decide(self._end, job, "expire", slot.key)

    # Books

    def _record(self, batch: Batch) -> None:
        seconds = self._seconds + self._moving
        self.count["steps"] += 1
        self._busy_s += seconds
        self._swap_s += self._moving
        self._kv_grid += self.kv.used * int(seconds / GRID)
        if self.config.record_steps:
            tokens = tuple((job.call.seq, n) for job, n in batch.tokens.items())
            self.steps.append(Step(batch.now, seconds, tokens, tuple(batch.preempted)))

    def _refuse_oversized(self, call: Call, body: Body) -> None:
        tokens = call.prompt_tokens + body.output_tokens
        name = f"call {call.seq} (program {call.program}, thread {call.thread!r}, number {call.index})"
        if tokens > self.config.max_model_len:
            raise ValueError(
                f"{name}: prompt {call.prompt_tokens} + output {body.output_tokens} tokens exceed "
                f"max_model_len {self.config.max_model_len}"
            )
        if blocks_for(tokens - 1) > self.config.kv_blocks:
            raise ValueError(
                f"{name}: prompt {call.prompt_tokens} + output {body.output_tokens} tokens need "
                f"{blocks_for(tokens - 1)} KV blocks, the engine has {self.config.kv_blocks}"
            )
