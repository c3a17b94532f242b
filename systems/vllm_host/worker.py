"""vLLM's V1 scheduler on a virtual clock: no model, no weights, no GPU.

Runs under the Python of the vLLM environment as a subprocess of
``systems.engines.vllm_virtual`` and serves ``systems.protocols.Engine`` over
stdin and stdout. It ends when its stdin closes.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_metrics import KVCacheMetricsCollector
from vllm.v1.core.kv_cache_utils import KVCacheBlock, get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from systems.protocols import LatencyModel, Scheduler
from systems.vllm_host.accounts import Account, Scheduled
from systems.vllm_host.options import HostOptions
from systems.vllm_host.scheduler import InFlight, PolicyScheduler
from systems.vllm_host.virtual_keeping import Keeps
from systems.vllm_host.wire import Failure, Question, State, receive, send
from vocabulary import (
    BLOCK,
    GRID,
    INF,
    Body,
    Call,
    EngineConfig,
    EngineView,
    Finished,
    Segment,
    Snapshot,
    Step,
)

_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 1024,
    "torch_dtype": "float32",
}
_COUNTERS = ("steps", "hit_tokens", "query_tokens", "computed_prefill_tokens", "decode_tokens")


class Vocabulary:
    """Token ids for segments: each segment id owns a span, so equal (id, offset) pairs are equal tokens.

    Nothing looks a token up in a model: ids may exceed any vocabulary.
    """

    def __init__(self, span: int) -> None:
        self._span = span
        self._base: dict[int, int] = {}

    def base(self, segment: int) -> int:
        """The id of the segment's token at offset 0."""
        return self._base.setdefault(segment, self._span * len(self._base))

    def tokens(self, prompt: tuple[Segment, ...]) -> list[int]:
        """The token ids of a prompt."""
        ids: list[int] = []
        for segment, length in prompt:
            base = self.base(segment)
            ids.extend(range(base, base + length))
        return ids


class EvictionCounter(KVCacheMetricsCollector):
    """Counts cached blocks whose content is lost to a new owner."""

    def __init__(self) -> None:
        self.evicted = 0

    def on_block_allocated(self, block: KVCacheBlock) -> None:
        """Not counted."""

    def on_block_accessed(self, block: KVCacheBlock) -> None:
        """Not counted."""

    def on_block_evicted(self, block: KVCacheBlock) -> None:
        """vLLM asks for every block it hands out; only some have content."""
        self.evicted += block.block_hash is not None


class VirtualVllm(Keeps):
    """One engine: vLLM's scheduler, our policy, a latency model, and the clock (seconds)."""

    def __init__(
        self, number: int, config: EngineConfig, policy: Scheduler, latency: LatencyModel, preemption: str
    ) -> None:
        self.number = number
        self.config = config
        self.latency = latency
        options = HostOptions(
            preemption=preemption,
            engine=number,
            record_decisions=config.record_decisions,
            retention="control" if config.retains else "none",
        )
        self.scheduler = build_scheduler(
            config, policy=policy, clock=self._time, options=options, whole_batches=True
        )
        self.scheduler.on_close = self._closed
        super().__init__(self.scheduler)
        self.evictions = EvictionCounter()
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.pool.metrics_collector = self.evictions
        self.vocabulary = Vocabulary(config.max_model_len + 1)
        hash_fn = get_hash_fn_by_name("sha256")
        init_none_hash(hash_fn)
        self.hasher = get_request_block_hasher(BLOCK, hash_fn) if config.prefix_cache else None
        self.replies: dict[str, int] = {}
        self.output: SchedulerOutput | None = None  # of the step in flight
        self.steps: list[Step] = []
        self.rows: list[Finished] = []
        self.count = dict.fromkeys(_COUNTERS, 0)
        self.busy_s = 0.0
        self.kv_grid = 0
        self.start = 0.0  # of the next step
        self.end = 0.0  # of the last step
        self.event: float | None = None  # time of an abort, which the scheduler must see

    # systems.protocols.Engine

    def submit(self, call: Call, body: Body, snap: Snapshot, now: float) -> None:
        """Take a call in; the engine's proxy has checked that it can fit."""
        if not self.scheduler.requests:
            self.start = max(now, self.end)
        request = Request(
            request_id=str(call.seq),
            prompt_token_ids=self.vocabulary.tokens(body.prompt),
            sampling_params=SamplingParams(max_tokens=body.output_tokens, ignore_eos=True),
            pooling_params=None,
            arrival_time=now,
            block_hasher=self.hasher,
        )
        self.replies[request.request_id] = self.vocabulary.base(body.output_id)
        self.scheduler.submit(request, call, snap, now)

    def abort(self, seq: int, now: float) -> Finished | None:
        """Take a call out at the boundary at ``now``."""
        self.event = now
        try:
            self.scheduler.finish_requests(str(seq), RequestStatus.FINISHED_ABORTED)
        finally:
            self.event = None
        rows = self._take_rows()
        return rows[0] if rows else None

    def advance(self, until: float) -> bool:
        """Run the steps that start before ``until``; True after the first that finishes calls."""
        while self.scheduler.requests and self.start < until:
            self._start_step()
            if any(_is_last(part) for part in self.scheduler.in_flight[-1].batch):
                return True
            self.collect()
        return False

    def collect(self) -> list[Finished]:
        """The end of the step: tokens appear, calls finish, then quanta expire."""
        batch = self.scheduler.in_flight[-1].batch
        self.scheduler.update_from_output(self.output, self._model_output(batch))
        return self._take_rows()

    def end_program(self, program: int, now: float) -> None:
        """The program is over."""
        self.scheduler.carried.end(program, now)
        self.forget(program)

    def view(self) -> EngineView:
        """What a router sees now."""
        scheduler, total = self.scheduler, self.config.kv_blocks
        free = self.pool.free_block_queue.get_all_free_blocks()
        cached = sum(block.block_hash is not None for block in free) + self.kept_blocks()
        running = len(scheduler.running) - len(scheduler.held)
        return EngineView(self.number, True, len(scheduler.requests), self._kv_used(), total, running, cached)

    def stats(self) -> dict[str, float]:
        """Totals so far, by the names of the other engines."""
        tally = self.scheduler.tally
        return {
            **self.count,
            "displaced": tally["displace"] + tally["hold"],
            "evicted": tally["evict"],
            "preemptions": tally["displace"] + tally["hold"] + tally["evict"],
            "calls_finished": tally["finish"],
            "calls_aborted": tally["abort"],
            "busy_s": self.busy_s,
            "evicted_blocks": self.evictions.evicted,
            "kv_block_seconds": self.kv_grid * GRID,
        }

    def state(self) -> State:
        """The clocks, and what was recorded since the last call of this."""
        steps, self.steps = self.steps, []
        decisions, self.scheduler.decisions = self.scheduler.decisions, []
        clock = self.start if self.scheduler.requests else INF
        return State(clock, self.end, tuple(steps), tuple(decisions))

    # One step

    def _time(self) -> float:
        return self.start if self.event is None else self.event

    def _start_step(self) -> None:
        output = self.scheduler.schedule()
        preempted: tuple[int, ...] = ()
        while not output.total_num_scheduled_tokens:  # the first running call preempted itself
            preempted += self.scheduler.in_flight[-1].preempted
            self.scheduler.update_from_output(output, ModelRunnerOutput([], {}))
            output = self.scheduler.schedule()
        step = self.scheduler.in_flight[-1]
        preempted += step.preempted
        seconds = self._seconds(step.batch)
        self._record(step, seconds, preempted)
        self.start = self.end = step.start + seconds
        self.output = output

    def _seconds(self, batch: list[Scheduled]) -> float:
        prefills = [(part.tokens, part.computed) for part in batch if part.admission]
        contexts = [part.request.num_tokens for part in batch if not part.admission]
        self.count["computed_prefill_tokens"] += sum(tokens for tokens, _ in prefills)
        self.count["decode_tokens"] += len(contexts)
        return self.latency.step(prefills, len(contexts), sum(contexts))

    def _model_output(self, batch: list[Scheduled]) -> ModelRunnerOutput:
        """The reply's next token for every call whose prompt is computed."""
        ids = [part.request.request_id for part in batch]
        sampled = [
            [self.replies[p.request.request_id] + p.request.num_output_tokens] if p.emits else []
            for p in batch
        ]
        return ModelRunnerOutput(ids, {name: i for i, name in enumerate(ids)}, sampled)

    def _record(self, step: InFlight, seconds: float, preempted: tuple[int, ...]) -> None:
        self.count["steps"] += 1
        self.busy_s += seconds
        self.kv_grid += self._kv_used() * int(seconds / GRID)
        if self.config.prefix_cache:
            first = [p for p in step.batch if p.first]
            self.count["query_tokens"] += sum(p.request.num_tokens for p in first)
            self.count["hit_tokens"] += sum(p.computed for p in first)
        if self.config.record_steps:
            batch = tuple((part.account.call.seq, part.tokens) for part in step.batch)
            self.steps.append(Step(step.start, seconds, batch, preempted))

    def _kv_used(self) -> int:
        return self.config.kv_blocks - int(self.pool.get_num_free_blocks()) - self.kept_blocks()

    def _closed(self, account: Account) -> None:
        self.replies.pop(str(account.call.seq))
        self.rows.append(account.row)

    def _take_rows(self) -> list[Finished]:
        rows, self.rows = self.rows, []
        return rows


def build_scheduler(
    config: EngineConfig,
    cls: type[Any] = PolicyScheduler,
    order: str = "priority",
    additional: dict[str, Any] | None = None,
    **host: Any,
) -> Any:
    """A ``cls``, vLLM's scheduler or a subclass, for ``config`` and a model of one full-attention layer.

    vLLM keeps one of its blocks to itself, which ``kv_blocks`` does not count. ``async_scheduling`` is set
    for an AsyncScheduler.
    """
    blocks = config.kv_blocks + 1
    vllm_config = _vllm_config(config, order, additional or {}, issubclass(cls, AsyncScheduler))
    vllm_config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=64, dtype=torch.float32)
    kv_config = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return cls(vllm_config, kv_config, StructuredOutputManager(vllm_config), BLOCK, **host)


def _vllm_config(
    config: EngineConfig, order: str, additional: dict[str, Any], asynchronous: bool
) -> VllmConfig:
    with tempfile.TemporaryDirectory() as folder:
        model = {**_MODEL, "max_position_embeddings": config.max_model_len}
        Path(folder, "config.json").write_text(json.dumps(model))
        return VllmConfig(
            model_config=ModelConfig(
                model=folder,
                tokenizer=folder,
                skip_tokenizer_init=True,
                max_model_len=config.max_model_len,
                dtype="float32",
            ),
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=config.prefix_cache),
            scheduler_config=SchedulerConfig(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                max_model_len=config.max_model_len,
                policy=order,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
                async_scheduling=asynchronous,
            ),
            parallel_config=ParallelConfig(),
            device_config=DeviceConfig("cpu"),
            additional_config=additional,
        )


def _is_last(part: Scheduled) -> bool:
    """Whether the step brings the last token of the call's reply."""
    return part.emits and part.request.num_output_tokens + 1 == part.request.max_tokens


class Server:
    """Answers requests until stdin closes. ``ask``: puts a Question to the other side, and waits."""

    def __init__(self) -> None:
        self.engine: VirtualVllm | None = None
        self.ask: Callable[[Question], Any] = lambda _: None

    def reset(self, *arguments: Any) -> None:
        """A new engine; the arguments of VirtualVllm."""
        self.engine = VirtualVllm(*arguments)

    def asks_victims(self, wanted: bool) -> None:
        """Whether the other side says what is given up first."""
        assert self.engine is not None
        ask = (lambda *given: self.ask(Question("victims", given))) if wanted else None
        self.engine.ask_victims(ask)

    def answer(self, data: bytes) -> tuple[bool, Any, State]:
        """(ok, result or Failure, state) of one request."""
        try:
            method, arguments = pickle.loads(data)
            mine = self if method in ("reset", "asks_victims") else self.engine
            result = getattr(mine, method)(*arguments)
            return True, result, self.engine.state() if self.engine else State()
        except Exception as error:
            failure = Failure(str(error), traceback.format_exc(), isinstance(error, ValueError))
            return False, failure, self.engine.state() if self.engine else State()


def serve(requests: BinaryIO, answers: BinaryIO, server: Server) -> None:
    """Answer until ``requests`` ends."""

    def ask(question: Question) -> Any:
        send(answers, question)
        return pickle.loads(receive(requests))

    server.ask = ask
    while True:
        try:
            data = receive(requests)
        except EOFError:
            return
        send(answers, server.answer(data))


def main(kind: type[Server] = Server) -> None:
    """Serve the parent on stdin and stdout; whatever prints to stdout goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers, kind())


if __name__ == "__main__":
    main()
