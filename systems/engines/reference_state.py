"""What a boundary of the reference engine works on: the calls, the two memories, the books.

The moves a call can make (in, out, held, resumed) are here, each with what it
costs and who is told; who moves when is in ``reference`` and ``reference_displacement``.
"""

from __future__ import annotations

from typing import NamedTuple

from systems.engines.reference_host import HostMemory
from systems.engines.reference_job import Batch, Job, order_of
from systems.engines.reference_kv import Block, Content, KVBlocks, content_of
from systems.protocols import Scheduler
from vocabulary import BLOCK, INF, Call, Decision, EngineConfig, Segment, blocks_for

_COUNTERS = (
    "steps", "hit_tokens", "query_tokens", "computed_prefill_tokens", "decode_tokens",
    "preemptions", "displaced", "evicted", "calls_finished", "calls_aborted",
    "swap_out_blocks", "swap_in_blocks", "swap_outs", "swap_full", "host_hit_tokens",
)  # fmt: skip


class Prefix(NamedTuple):
    """What a waiting call finds: ``hits`` on the GPU, then ``fetched`` from the tier or ``copied``
    blocks from its own copy; in all, ``tokens`` need not be computed."""

    hits: list[Block]
    fetched: list[Content]
    copied: int
    tokens: int


class EngineState:
    """Calls and memory between two steps."""

    def __init__(self, id: int, config: EngineConfig, scheduler: Scheduler) -> None:  # noqa: A002
        self.id = id
        self.config = config
        self.scheduler = scheduler
        self.decisions: list[Decision] = []
        self.host = HostMemory(config.host_blocks, config.host_tier)
        self.kv = KVBlocks(config.kv_blocks, config.prefix_cache, self.host.enter)
        self.waiting: list[Job] = []  # held ones included
        self.running: list[Job] = []  # in order of admission
        self.count = dict.fromkeys(_COUNTERS, 0)
        self.moved_out = 0  # blocks moved to and from the host since the last step began
        self.moved_in = 0

    def jobs(self) -> list[Job]:
        """Everybody here."""
        return [*self.running, *self.waiting]

    def worst(self) -> Job | None:
        """The running call that is displaced first."""
        return max(self.running, key=lambda job: job.rank, default=None)

    def worst_held(self, behind: Job | None = None) -> Job | None:
        """The last of the held calls, if it comes after ``behind``."""
        held = [job for job in self.waiting if job.held and (behind is None or job.order > behind.order)]
        return max(held, key=order_of, default=None)

    # What a call finds, and needs

    def prefix(self, call: Call) -> tuple[Segment, ...]:
        """What the GPU's prefix cache holds of a waiting call (systems.protocols.CacheView)."""
        job = next(job for job in self.waiting if job.call is call)
        hits = self.kv.find(job.segments, job.tokens)
        return content_of(job.segments, BLOCK * len(hits))

    def look_up(self, job: Job) -> Prefix:
        """Leading tokens of a waiting call whose KV exists: the GPU's, and the longer of tier and copy."""
        hits = self.kv.find(job.segments, job.tokens)
        further = self.host.find(job.segments, job.tokens, len(hits))
        found = BLOCK * (len(hits) + len(further))
        if job.saved >= found:
            return Prefix(hits, [], blocks_for(job.saved) - len(hits), job.saved)
        return Prefix(hits, further, 0, found)

    def need(self, job: Job, hits: list[Block]) -> int:
        """Free blocks that admitting ``job`` whole would take."""
        return blocks_for(job.tokens) - sum(block.users > 0 for block in hits)

    def lacking(self, job: Job, hits: list[Block]) -> int:
        """Blocks of a waiting call that it does not share with calls or with what is kept."""
        return blocks_for(job.tokens) - sum(block.users + block.pins > 0 for block in hits)

    def barred(self, job: Job, hits: list[Block], promised: int = 0) -> bool:  # noqa: ARG002
        """Whether what is kept stops a waiting call: nothing is kept here."""
        return False

    def give(self, job: Job, n: int, blocks: int) -> None:
        """``n`` tokens are scheduled: take ``blocks`` for them, and cache what becomes full."""
        job.blocks += self.kv.allocate(blocks)
        self.kv.enter(job.blocks, job.segments, job.computed + n)

    # Into the batch

    def admit(self, job: Job, prefix: Prefix, now: float) -> None:
        """It enters the batch with what it found; its further blocks are given later."""
        self.waiting.remove(job)
        self.running.append(job)
        self._drop_copy(job)
        self.host.fetch(prefix.fetched)
        self.kv.share(prefix.hits)
        job.blocks, job.computed = list(prefix.hits), prefix.tokens
        job.admissions += 1
        self.moved_in += prefix.copied + len(prefix.fetched)
        self.count["swap_in_blocks"] += prefix.copied
        self.count["host_hit_tokens"] += BLOCK * len(prefix.fetched)
        if job.row.t_first_sched == INF:
            self._first(job, now)
        self._started(job, now)

    def _first(self, job: Job, now: float) -> None:
        job.row.t_first_sched = now
        job.row.cached_tokens = job.computed
        if self.config.prefix_cache:
            self.count["query_tokens"] += job.tokens
            self.count["hit_tokens"] += job.computed

    def resume(self, job: Job, now: float) -> None:
        """A held call becomes the last of the running, with what it has computed."""
        self.waiting.remove(job)
        self.running.append(job)
        job.held = False
        self._started(job, now)

    def _started(self, job: Job, now: float) -> None:
        self.decide(now, job, "admit", job.computed)
        if self.scheduler.tracks_wait:
            self.scheduler.start(job.call, now)

    # Out of the batch

    def preempt(self, job: Job, batch: Batch, rule: str) -> None:
        """A running call loses its blocks, for ``displace`` or ``evict``; swapped out if that is the mode."""
        self.running.remove(job)
        self.waiting.append(job)
        if self.config.preemption == "swap":
            self._swap_out(job)
        self._lose(job)
        self._put_back(job, batch, rule)
        self._stopped(job, batch.now)

    def hold(self, job: Job, batch: Batch) -> None:
        """A running call waits with its blocks."""
        self.running.remove(job)
        self.waiting.append(job)
        job.held = True
        self._put_back(job, batch, "hold")
        self._stopped(job, batch.now)

    def evict_held(self, job: Job, batch: Batch) -> None:
        """A held call loses its blocks; it waits already."""
        job.held = False
        self._lose(job)
        self._put_back(job, batch, "evict")

    def _swap_out(self, job: Job) -> None:
        blocks = blocks_for(job.computed)
        if not self.host.copy_in(blocks):
            self.count["swap_full"] += 1
            return
        job.saved = job.computed
        self.moved_out += blocks
        self.count["swap_outs"] += 1
        self.count["swap_out_blocks"] += blocks

    def _lose(self, job: Job) -> None:
        self.kv.release(job.blocks)
        job.blocks, job.computed = [], 0
        job.prefilling = job.prefilling or not job.saved  # who has a copy of all goes on decoding

    def _put_back(self, job: Job, batch: Batch, rule: str) -> None:
        job.row.preemptions += 1
        batch.preempted.append(job.call.seq)
        self.count["preemptions"] += 1
        self.count["evicted" if rule == "evict" else "displaced"] += 1
        self.decide(batch.now, job, rule, 0)

    def _stopped(self, job: Job, now: float) -> None:
        if self.scheduler.tracks_wait:
            self.scheduler.stop(job.call, job.usage(now), now)

    def leave(self, job: Job) -> None:
        """It is over, wherever it is, and lets go of everything."""
        (self.running if job in self.running else self.waiting).remove(job)
        self.kv.release(job.blocks)
        self._drop_copy(job)

    def _drop_copy(self, job: Job) -> None:
        self.host.give_up(blocks_for(job.saved))
        job.saved = 0

    # Books

    def decide(self, now: float, job: Job, rule: str, value: float) -> None:
        """Note a decision."""
        if self.config.record_decisions:
            self.decisions.append(Decision(now, self.id, job.call.seq, rule, job.slot.level, value))

    def kept_blocks(self) -> list[list[Block]]:
        """The blocks of everything that is kept."""
        return []

    def check(self) -> None:
        """Recount everything between two steps. Raises AssertionError."""
        assert len(self.running) <= self.config.max_num_seqs, "more running calls than max_num_seqs"
        for job in self.waiting:
            assert job.held or (not job.computed and not job.blocks), "a waiting call has KV and is not held"
            assert not (job.held and job.saved), "a held call has a copy"
            assert job.saved < job.tokens, "a copy holds what was never computed"
            assert job.prefilling or job.held or job.saved == job.tokens - 1, (
                "a decode would go on without KV"
            )
        for job in self.running:
            assert not job.saved, "a running call has a copy"
            assert not job.held, "a running call is held"
            assert job.computed < job.tokens, "nothing left to compute"
        for job in self.running + [job for job in self.waiting if job.held]:
            assert len(job.blocks) == blocks_for(job.computed), "a call holds too many or too few blocks"
            assert job.prefilling or job.computed == job.tokens - 1, "a decode is not one token behind"
        assert not any(job.prefilling for job in self.running[:-1]), "a partial prefill is not last"
        self.kv.check([job.blocks for job in self.jobs()], self.kept_blocks())
        fetched = self.count["host_hit_tokens"] // BLOCK
        self.host.check([blocks_for(job.saved) for job in self.waiting], fetched)
