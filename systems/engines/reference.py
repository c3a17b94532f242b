"""The reference engine: docs/engine.md, one step at a time, dumb on purpose.

It defines what the lazy engine must reproduce bit for bit, so it favours the
order and the words of the document over speed: every step looks at every
call, every look-up spells out the whole prefix.
"""

from __future__ import annotations

from systems.engines.reference_job import NO_SLOT, Batch, Job, Room, order_of
from systems.engines.reference_kv import Block, KVBlocks, content_of
from systems.protocols import LatencyModel, Scheduler, TransferModel
from vocabulary import (
    BLOCK,
    GRID,
    INF,
    Body,
    Call,
    Decision,
    EngineConfig,
    EngineView,
    Finished,
    Segment,
    Snapshot,
    Step,
    blocks_for,
)

_COUNTERS = (
    "steps", "hit_tokens", "query_tokens", "computed_prefill_tokens", "decode_tokens",
    "preemptions", "displaced", "evicted", "calls_finished", "calls_aborted", "swap_out_blocks",
    "swap_in_blocks", "swap_outs", "swap_full", "host_hit_tokens", "host_in_blocks", "host_dropped_blocks",
)  # fmt: skip


class ReferenceEngine:
    """One engine on virtual time, stepped one step at a time (systems.protocols.Engine).

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
        self.id = id
        self.config = config
        self.scheduler = scheduler
        self.latency = latency
        self.transfer = transfer
        self.steps: list[Step] = []
        self.decisions: list[Decision] = []
        self._kv = KVBlocks(config.kv_blocks, config.prefix_cache)
        self._waiting: list[Job] = []
        self._running: list[Job] = []  # in order of admission
        self._clock = 0.0  # end of the last step, or when the first call came after it
        self._end = 0.0  # end of the last step
        self._batch = Batch(0.0, 0, [])  # of the last step
        self._seconds = 0.0  # its length
        self._count = dict.fromkeys(_COUNTERS, 0)
        self._busy_s = 0.0
        self._swap_s = 0.0
        self._kv_grid = 0  # blocks in use x step length in units of the grid: exact as an integer
        if getattr(scheduler, "reads_cache", False):
            scheduler.attach(self)  # type: ignore[attr-defined]

    # The host's side

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Take a call in at ``now``. Raises ValueError if it can never fit."""
        self._refuse_oversized(call, body)
        if not self._busy():
            self._clock = max(now, self._end)
        job = Job(call, body, NO_SLOT, Finished(call, self.id, now))
        self._waiting.append(job)  # before the scheduler is asked: it may want to see the cached prefix
        slot = self.scheduler.arrive(call, snap, now)
        job.take(slot)
        self._decide(now, call, "arrive", slot.level, slot.key)

    def abort(self, call: Call, now: float) -> Finished | None:
        """Take ``call`` out at the boundary at ``now``; None if it is not here."""
        job = next((j for j in self._jobs() if j.call.seq == call.seq), None)
        if job is None:
            return None
        (self._running if job in self._running else self._waiting).remove(job)
        self._kv.release(job.blocks)
        usage = job.close(now)
        job.row.aborted = True
        self._count["calls_aborted"] += 1
        self._decide(now, call, "abort", job.slot.level, usage.served)
        self.scheduler.abort(call, usage, now)
        return job.row

    def clock(self) -> float:
        """When the next step starts; INF without calls."""
        return self._clock if self._busy() else INF

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
        finished = [job.row for job, n in given if self._end_step(job, n, self._seconds)]
        self._expire()
        return finished

    def results_at(self) -> float:
        """End of the last step run."""
        return self._end

    def end_program(self, program: int, now: float) -> None:
        """The program is over."""
        self.scheduler.end(program, now)

    def view(self) -> EngineView:
        """What a router sees now."""
        calls = len(self._waiting) + len(self._running)
        used, total = self._kv.used, self._kv.total
        return EngineView(self.id, True, calls, used, total, len(self._running), self._kv.cached_free)

    def prefix(self, call: Call) -> tuple[Segment, ...]:
        """What the GPU's prefix cache holds of a call that is here (systems.protocols.CacheView)."""
        job = next(job for job in self._jobs() if job.call is call)
        hits = self._kv.find(job.segments, job.tokens)
        return content_of(job.segments, BLOCK * len(hits))

    def stats(self) -> dict[str, float]:
        """Totals so far: counts, seconds, tokens, blocks and block-seconds."""
        return {
            **self._count,
            "busy_s": self._busy_s,
            "swap_s": self._swap_s,
            "evicted_blocks": self._kv.evicted,
            "kv_block_seconds": self._kv_grid * GRID,
        }

    def close(self) -> None:
        """Nothing to release."""

    def check(self) -> None:
        """Recount everything between two steps. Raises AssertionError."""
        assert len(self._running) <= self.config.max_num_seqs, "more running calls than max_num_seqs"
        assert all(job.computed == 0 and not job.blocks for job in self._waiting), "a waiting call holds KV"
        for job in self._running:
            assert len(job.blocks) == blocks_for(job.computed), "a call holds too many or too few blocks"
            assert job.computed < job.tokens, "nothing left to compute"
            assert job.prefilling or job.computed == job.tokens - 1, "a decode is not one token behind"
        assert not any(job.prefilling for job in self._running[:-1]), "a partial prefill is not last"
        self._kv.check([job.blocks for job in self._jobs()])

    # One boundary and the step after it

    def _start_step(self) -> None:
        batch = self._schedule(self._clock, [])
        while not batch.tokens:  # the first running call preempted itself: the boundary repeats
            batch = self._schedule(self._clock, batch.preempted)
        prefills = [(n, job.computed) for job, n in batch.tokens.items() if job.prefilling]
        contexts = [job.tokens for job in batch.tokens if not job.prefilling]
        seconds = self.latency.step(prefills, len(contexts), sum(contexts))
        self._record(batch, seconds)
        self._batch, self._seconds = batch, seconds
        self._clock = self._end = batch.now + seconds

    @staticmethod
    def _is_last(job: Job, n: int) -> bool:
        """Whether these ``n`` tokens bring the last one of the reply."""
        done = job.computed + n == job.tokens
        return done and job.row.output_tokens + 1 == job.body.output_tokens

    def _schedule(self, now: float, preempted: list[int]) -> Batch:
        batch = Batch(now, self.config.max_num_batched_tokens, preempted)
        self._promote(now)
        self._displace(batch)
        for job in self._jobs():
            job.renewed = False
        self._schedule_running(batch)
        if not batch.evicted:
            self._admit(batch)
        return batch

    def _promote(self, now: float) -> None:
        if not self.scheduler.tracks_wait or self.scheduler.next_due() > now:
            return
        for call, slot in self.scheduler.due(now):
            job = next(job for job in self._waiting if job.call is call)
            job.take(slot)
            job.row.promotions += 1
            self._decide(now, call, "promote", slot.level, slot.key)

    def _schedule_running(self, batch: Batch) -> None:
        todo = list(self._running)
        for job in todo:
            if batch.budget <= 0:
                return
            if job not in self._running:  # preempted for somebody before it
                continue
            n = min(job.tokens - job.computed, batch.budget)
            need = blocks_for(job.computed + n) - len(job.blocks)
            while need > self._kv.free:
                worst = max(self._running, key=order_of)
                batch.drop(worst)
                batch.evicted = True
                self._preempt(worst, batch, "evict")
                if worst is job:
                    return
            self._give(job, n, need)
            batch.put(job, n)

    def _admit(self, batch: Batch) -> None:
        while batch.budget > 0 and len(self._running) < self.config.max_num_seqs and self._waiting:
            job = min(self._waiting, key=order_of)
            hits = self._kv.find(job.segments, job.tokens)
            if self._need(job, hits) > self._kv.free:
                return
            self._waiting.remove(job)
            self._running.append(job)
            self._kv.share(hits)
            job.blocks, job.computed, job.prefilling = hits, BLOCK * len(hits), True
            self._admitted(job, batch.now)
            n = min(job.tokens - job.computed, batch.budget)
            self._give(job, n, blocks_for(job.computed + n) - len(hits))
            batch.put(job, n)

    def _need(self, job: Job, hits: list[Block]) -> int:
        """Free blocks that admitting ``job`` whole would take."""
        return blocks_for(job.tokens) - sum(block.users > 0 for block in hits)

    def _give(self, job: Job, n: int, blocks: int) -> None:
        job.blocks += self._kv.allocate(blocks)
        self._kv.enter(job.blocks, job.segments, job.computed + n)

    def _admitted(self, job: Job, now: float) -> None:
        row = job.row
        if row.t_first_sched == INF:
            row.t_first_sched = now
            row.cached_tokens = job.computed
            if self.config.prefix_cache:
                self._count["query_tokens"] += job.tokens
                self._count["hit_tokens"] += job.computed
        self._decide(now, job.call, "admit", job.slot.level, job.computed)
        if self.scheduler.tracks_wait:
            self.scheduler.start(job.call, now)

    def _preempt(self, job: Job, batch: Batch, rule: str) -> None:
        """Recompute preemption, for ``displace`` or ``evict``."""
        self._running.remove(job)
        self._waiting.append(job)
        self._kv.release(job.blocks)
        job.blocks, job.computed = [], 0
        job.row.preemptions += 1
        batch.preempted.append(job.call.seq)
        self._count["preemptions"] += 1
        self._count["displaced" if rule == "displace" else "evicted"] += 1
        self._decide(batch.now, job.call, rule, job.slot.level, 0)
        if self.scheduler.tracks_wait:
            self.scheduler.stop(job.call, job.usage(batch.now), batch.now)

    # Displacement

    def _displace(self, batch: Batch) -> None:
        room = self._room()
        job = min(self._waiting, key=order_of, default=None)
        while job is not None and self._make_room(job, room, batch):
            passed = job.order
            job = min((j for j in self._waiting if j.order > passed), key=order_of, default=None)

    def _room(self) -> Room:
        budget = self.config.max_num_batched_tokens
        wants: dict[Job, int] = {}
        for job in self._running:
            wants[job] = min(job.tokens - job.computed, budget)
            budget -= wants[job]
        return Room(self.config.max_num_seqs - len(self._running), budget, wants)

    def _make_room(self, job: Job, room: Room, batch: Batch) -> bool:
        """Preempt what ``job`` may displace until it fits, and reserve its place; False to stop."""
        worst = self._worst()
        if worst is None or not job.outranks(worst):
            return False
        if room.budget <= 0:
            last = self._running[-1]
            if not last.prefilling or not job.outranks(last):
                return False
            self._displace_one(last, room, batch)
        hits = self._kv.find(job.segments, job.tokens)
        while room.slots <= 0 or self._need(job, hits) > self._kv.free - room.reserved:
            worst = self._worst()
            if worst is None or not job.outranks(worst):
                return False
            self._displace_one(worst, room, batch)
        room.slots -= 1
        room.reserved += self._need(job, hits)
        room.budget -= min(job.tokens - BLOCK * len(hits), room.budget)
        return True

    def _displace_one(self, victim: Job, room: Room, batch: Batch) -> None:
        room.slots += 1
        room.budget += room.wants[victim]
        self._preempt(victim, batch, "displace")

    def _worst(self) -> Job | None:
        return max(self._running, key=lambda job: job.rank, default=None)

    # The end of a step

    def _end_step(self, job: Job, n: int, seconds: float) -> bool:
        """Account ``n`` tokens of ``job``; True if it is finished."""
        row = job.row
        self._count["computed_prefill_tokens" if job.prefilling else "decode_tokens"] += n
        job.charge(n, seconds, self.scheduler.unit)
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
        self._running.remove(job)
        self._kv.release(job.blocks)
        usage = job.close(self._end)
        self._count["calls_finished"] += 1
        self._decide(self._end, job.call, "finish", job.slot.level, usage.served)
        self.scheduler.finish(job.call, usage, self._end)

    def _expire(self) -> None:
        for job in self._running:
            if not job.expired:
                continue
            job.renewed = True
            slot = self.scheduler.expire(job.call, job.row.served, self._end)
            job.row.demotions += slot.level > job.slot.level
            job.take(slot)
            self._decide(self._end, job.call, "expire", slot.level, slot.key)

    # Books

    def _record(self, batch: Batch, seconds: float) -> None:
        self._count["steps"] += 1
        self._busy_s += seconds
        self._kv_grid += self._kv.used * int(seconds / GRID)
        if self.config.record_steps:
            tokens = tuple((job.call.seq, n) for job, n in batch.tokens.items())
            self.steps.append(Step(batch.now, seconds, tokens, tuple(batch.preempted)))

    def _decide(self, now: float, call: Call, rule: str, level: int, value: float) -> None:
        if self.config.record_decisions:
            self.decisions.append(Decision(now, self.id, call.seq, rule, level, value))

    def _jobs(self) -> list[Job]:
        return [*self._running, *self._waiting]

    def _busy(self) -> bool:
        return bool(self._running or self._waiting)

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
