"""vLLM's own V1 scheduler with nothing of ours inside, on a virtual clock: an oracle for our engines.

Only what vLLM says is used here: the scheduler's outputs, its requests' counters and its prefix cache's
statistics. Runs under the Python of the vLLM environment; ``main`` also serves engines with a policy of ours
(``worker``), those that read the prefix cache included, so that one process plays them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from systems.protocols import LatencyModel
from systems.vllm_host import worker
from systems.vllm_host.stock_order import StockOrder, priority_of
from systems.vllm_host.wire import State
from vocabulary import (
    BLOCK,
    INF,
    Body,
    Call,
    EngineConfig,
    EngineView,
    Finished,
    Segment,
    Snapshot,
    Step,
    segments_of,
)


class StockVllm:
    """One engine: vLLM's ``Scheduler``, a latency model and the clock (seconds).

    Rows say what vLLM's outputs say: arrival, first step, first token, end, tokens, hits, steps, preemptions.
    """

    def __init__(
        self, number: int, config: EngineConfig, order: StockOrder, latency: LatencyModel, preemption: str
    ) -> None:
        if preemption != "recompute":
            raise ValueError(f"vLLM's own scheduler preempts by recompute, not by {preemption}")
        self.number, self.config, self.latency = number, config, latency
        self.priority = order.policy == "priority"
        self.scheduler: Any = worker.build_scheduler(
            config, cls=VllmScheduler, order=order.policy, log_stats=True
        )
        self.evictions = worker.EvictionCounter()
        self.scheduler.kv_cache_manager.block_pool.metrics_collector = self.evictions
        self.vocabulary = worker.Vocabulary(config.max_model_len + 1)
        hash_fn = get_hash_fn_by_name("sha256")
        init_none_hash(hash_fn)
        self.hasher = get_request_block_hasher(BLOCK, hash_fn) if config.prefix_cache else None
        self.replies: dict[str, int] = {}
        self.open: dict[str, Finished] = {}
        self.fresh: set[str] = set()  # admitted, and no token since
        self.output: Any = None
        self.sampled: dict[str, bool] = {}  # of the step in flight: does it bring a token?
        self.steps: list[Step] = []
        names = ("steps", "hit_tokens", "query_tokens", "computed_prefill_tokens", "decode_tokens")
        self.count = dict.fromkeys((*names, "calls_finished", "calls_aborted", "preemptions"), 0)
        self.busy_s = self.start = self.end = 0.0

    # systems.protocols.Engine

    def submit(self, call: Call, body: Body, _snap: Snapshot, now: float) -> None:
        """Take a call in. vLLM sees the order of submission as arrival times, so that none are equal."""
        if not self.scheduler.requests:
            self.start = max(now, self.end)
        name = str(call.seq)
        request = Request(
            request_id=name,
            prompt_token_ids=self.vocabulary.tokens(body.prompt),
            sampling_params=SamplingParams(max_tokens=body.output_tokens, ignore_eos=True),
            pooling_params=None,
            arrival_time=float(call.seq),
            priority=priority_of(call.program) if self.priority else 0,
            block_hasher=self.hasher,
        )
        self.replies[name] = self.vocabulary.base(body.output_id)
        self.open[name] = Finished(call, self.number, now)
        self.scheduler.add_request(request)

    def abort(self, seq: int, now: float) -> Finished | None:
        """Take a call out at the boundary at ``now``."""
        if str(seq) not in self.open:
            return None
        self.scheduler.finish_requests(str(seq), RequestStatus.FINISHED_ABORTED)
        return self._closed(str(seq), now, aborted=True)

    def advance(self, until: float) -> bool:
        """Run the steps that start before ``until``; True after the first that finishes calls."""
        while self.scheduler.requests and self.start < until:
            self._start_step()
            if any(self._is_last(name) for name, emits in self.sampled.items() if emits):
                return True
            self.collect()
        return False

    def collect(self) -> list[Finished]:
        """The end of the step: vLLM takes the tokens in; the rows of the calls it finished."""
        names, requests = list(self.sampled), self.scheduler.requests
        tokens = [[self.replies[n] + requests[n].num_output_tokens] if self.sampled[n] else [] for n in names]
        result = ModelRunnerOutput(names, {n: i for i, n in enumerate(names)}, tokens)
        for name in names:
            row = self.open[name]
            row.steps += 1
            if self.sampled[name]:
                self.fresh.discard(name)
                row.output_tokens += 1
                row.t_first_token = min(row.t_first_token, self.end)
        self.scheduler.update_from_output(self.output, result)
        return [self._closed(name, self.end) for name in names if name not in requests]

    def end_program(self, _program: int, _now: float) -> None:
        """vLLM knows no programs."""

    def view(self) -> EngineView:
        """What a router sees now."""
        pool = self.scheduler.kv_cache_manager.block_pool
        free = pool.free_block_queue.get_all_free_blocks()
        total = self.config.kv_blocks
        cached = sum(block.block_hash is not None for block in free)
        running = len(self.scheduler.running)
        return EngineView(self.number, True, len(self.open), total - len(free), total, running, cached)

    def stats(self) -> dict[str, float]:
        """Totals so far, by the names of the other engines."""
        return {**self.count, "busy_s": self.busy_s, "evicted_blocks": self.evictions.evicted}

    def state(self) -> State:
        """The clocks, and the steps since the last call of this."""
        steps, self.steps = self.steps, []
        return State(self.start if self.scheduler.requests else INF, self.end, tuple(steps), ())

    # One step

    def _start_step(self) -> None:
        preempted: set[str] = set()
        while True:
            output = self.scheduler.schedule()
            preempted |= output.preempted_req_ids or set()
            if output.num_scheduled_tokens:
                break  # else the first running call preempted itself
            self.scheduler.update_from_output(output, ModelRunnerOutput([], {}))
        self._admitted(output)
        self._count_hits()
        self.output = output
        seconds = self._seconds(output.num_scheduled_tokens)
        for name in preempted:
            self.open[name].preemptions += 1
        self.count["preemptions"] += len(preempted)
        self.count["steps"] += 1
        self.busy_s += seconds
        if self.config.record_steps:
            batch = tuple((int(name), n) for name, n in output.num_scheduled_tokens.items())
            self.steps.append(Step(self.start, seconds, batch, tuple(sorted(map(int, preempted)))))
        self.start = self.end = self.start + seconds

    def _admitted(self, output: SchedulerOutput) -> None:
        new = {part.req_id for part in output.scheduled_new_reqs}
        self.fresh |= new | output.scheduled_cached_reqs.resumed_req_ids
        for name in new:
            row, request = self.open[name], self.scheduler.requests[name]
            row.t_first_sched = self.start
            row.cached_tokens = request.num_computed_tokens - output.num_scheduled_tokens[name]

    def _count_hits(self) -> None:
        stats = self.scheduler.kv_cache_manager.make_prefix_cache_stats()
        self.count["query_tokens"] += stats.queries
        self.count["hit_tokens"] += stats.hits

    def _seconds(self, batch: dict[str, int]) -> float:
        prefills, contexts = [], []
        self.sampled = {}
        for name, tokens in batch.items():
            request = self.scheduler.requests[name]
            if name in self.fresh:
                prefills.append((tokens, request.num_computed_tokens - tokens))
            else:
                contexts.append(request.num_tokens)
            self.sampled[name] = not request.is_prefill_chunk
        self.count["computed_prefill_tokens"] += sum(tokens for tokens, _ in prefills)
        self.count["decode_tokens"] += len(contexts)
        return self.latency.step(prefills, len(contexts), sum(contexts))

    def _is_last(self, name: str) -> bool:
        request = self.scheduler.requests[name]
        return bool(request.num_output_tokens + 1 == request.max_tokens)

    def _closed(self, name: str, now: float, aborted: bool = False) -> Finished:
        row = self.open.pop(name)
        del self.replies[name]
        self.fresh.discard(name)
        row.t_end, row.aborted = now, aborted
        self.count["calls_aborted" if aborted else "calls_finished"] += 1
        return row


class CacheVllm(worker.VirtualVllm):
    """Our policy inside vLLM's scheduler, which may ask vLLM's prefix cache (systems.protocols.CacheView)."""

    def __init__(
        self, number: int, config: EngineConfig, policy: Any, latency: LatencyModel, preemption: str
    ) -> None:
        super().__init__(number, config, policy, latency, preemption)
        self.bodies: dict[int, Body] = {}
        policy.attach(self)

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Take a call in; its policy may ask for its prefix at once."""
        self.bodies[call.seq] = body
        super().submit(call, body, snap, now)

    def prefix(self, call: Call) -> Sequence[Segment]:
        """What vLLM's prefix cache holds of a waiting call's prompt now; its replies so far included."""
        body = self.bodies[call.seq]
        request = self.scheduler.by_seq.get(call.seq) or Request(
            request_id=str(call.seq),
            prompt_token_ids=self.vocabulary.tokens(body.prompt),
            sampling_params=SamplingParams(max_tokens=body.output_tokens, ignore_eos=True),
            pooling_params=None,
            block_hasher=self.hasher,
        )
        _, tokens = self.scheduler.blocks_needed(request)
        return _cut(segments_of(body.ids, body.ends, body.segments + 1), tokens)


def _cut(segments: Sequence[Segment], tokens: int) -> list[Segment]:
    found = []
    for segment, length in segments:
        if tokens <= 0:
            break
        found.append((segment, min(length, tokens)))
        tokens -= length
    return found


class StockServer(worker.Server):
    """Engines of three kinds, by what stands in the policy's place."""

    def reset(self, number: int, config: EngineConfig, policy: Any, *rest: Any) -> None:
        """A new engine."""
        made: Any = worker.VirtualVllm
        if isinstance(policy, StockOrder):
            if config.retains:
                raise ValueError("vLLM's own scheduler keeps nothing: retention needs our class in it")
            made = StockVllm
        elif getattr(policy, "reads_cache", False):
            made = CacheVllm
        self.engine = made(number, config, policy, *rest)


def main() -> None:
    """Serve the parent, as ``worker.main`` does."""
    worker.main(StockServer)
