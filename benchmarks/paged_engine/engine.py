"""The project's own engine with a model behind it: ``reference`` plans, PyTorch computes, a clock measures.

``ReferenceEngine`` decides everything (order, displacement, admission, chunks, blocks, prefix hits) and
asks its latency model how long the step takes. Here that model runs the step on the device and answers
with the seconds it took: virtual time advances by measured steps, and policies see those.
A ``Block`` of the KV manager is a page of the cache: what is shared there is shared on the device.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.paged_engine.model import Llama, Row
from systems.engines.reference import ReferenceEngine
from systems.engines.reference_job import Batch, Job
from systems.engines.reference_kv import Block
from systems.protocols import LatencyModel, Scheduler
from vocabulary import BLOCK, EngineConfig, Segment, blocks_for, on_grid


class Timed(NamedTuple):
    """A step as the latency model was asked for it, and what it took (seconds).

    ``seconds``: inputs built, model run, tokens on the host; on a GPU by the wall clock, and ``device_s``
    between two events there; on a CPU in CPU seconds of this process, so that others do not count.
    ``again``: tokens that the engine took for computed and that were not (see ``PagedEngine``).
    """

    prefills: tuple[tuple[int, int], ...]
    n_decode: int
    sum_ctx: int
    seconds: float
    device_s: float
    again: int


class Served(NamedTuple):
    """A call: its tokens so far, how many of them are the prompt, log-probability of each reply token."""

    tokens: list[int]
    prompt: int
    logprobs: list[float]


class Texts:
    """Token ids of segments: replies as they were generated, anything else drawn from its id."""

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab
        self.replies: dict[int, list[int]] = {}
        self._drawn: set[int] = set()

    def of(self, segments: Sequence[Segment]) -> list[int]:
        """The tokens of ``segments``. Raises RuntimeError if a reply is quoted beyond its end."""
        tokens: list[int] = []
        for segment, length in segments:
            if segment not in self.replies:
                self._drawn.add(segment)
                tokens += self._draw(segment, length)
            elif length > len(self.replies[segment]):
                raise RuntimeError(f"segment {segment}: {length} tokens of a reply that is shorter")
            else:
                tokens += self.replies[segment][:length]
        return tokens

    def begin(self, segment: int) -> None:
        """``segment`` is a reply from now on. Raises RuntimeError if it is text already."""
        if segment in self._drawn or segment in self.replies:
            raise RuntimeError(f"segment {segment} is a reply and was another text before")
        self.replies[segment] = []

    def _draw(self, segment: int, length: int) -> list[int]:
        z = np.arange(length, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(segment % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        return [int(n) for n in (z ^ (z >> np.uint64(31))) % np.uint64(self.vocab)]


class Execution:
    """The latency model of one ``PagedEngine``: runs ``batch`` on ``model``, ``repeat`` times, and says how
    long that took (the median). Repeating changes nothing: the same keys go to the same places.
    With ``told`` it says that model's times instead: the schedule is then the same on every machine."""

    name = "measured"

    def __init__(self, model: Llama, repeat: int = 1, told: LatencyModel | None = None) -> None:
        self.model, self.repeat, self.told = model, repeat, told
        self.batch: Batch | None = None
        self.filled: dict[Block, int] = {}
        self.log: list[Timed] = []
        self.done: dict[tuple[int, str, int], Served] = {}
        self._texts = Texts(model.shape.vocab)
        self._open: dict[int, Served] = {}
        self._page: dict[Block, int] = {}

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """Run the step; seconds it took, on the time grid."""
        assert self.batch is not None
        jobs = list(self.batch.tokens)
        rows = [self._row(job, n) for job, n in self.batch.tokens.items()]
        seconds, device_s, logits = self._run(rows)
        for job, row in zip(jobs, rows, strict=True):
            for index in range(row.start // BLOCK, blocks_for(row.end)):
                self.filled[job.blocks[index]] = min(BLOCK, row.end - index * BLOCK)
        self._emit([job for job, row in zip(jobs, rows, strict=True) if row.emits], logits)
        again = sum(job.computed - row.start for job, row in zip(jobs, rows, strict=True))
        self.log.append(Timed(tuple(prefills), n_decode, sum_ctx, seconds, device_s, again))
        return self.told.step(prefills, n_decode, sum_ctx) if self.told else on_grid(seconds)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:
        """Nothing to offer: a step is known once it ran."""
        raise NotImplementedError("a measured engine runs step by step")

    def forget(self, job: Job) -> None:
        """The call left: its text is kept if it has all of it."""
        served = self._open.pop(job.call.seq, None)
        if served is not None and len(served.tokens) - served.prompt == job.body.output_tokens:
            self.done[job.call.program, job.call.thread, job.call.index] = served

    def _row(self, job: Job, n: int) -> Row:
        served = self._open.get(job.call.seq)
        if served is None:
            text = self._texts.of(job.body.prompt)
            self._texts.begin(job.body.output_id)
            served = self._open[job.call.seq] = Served(text, len(text), [])
        start, end = self._first_hole(job), job.computed + n
        table = [self._page.setdefault(block, len(self._page)) for block in job.blocks]
        decodes = end - start == 1 and not job.prefilling
        return Row(served.tokens[start:end], start, table, end == job.tokens, decodes)

    def _first_hole(self, job: Job) -> int:
        """Where a call's KV really ends: ``job.computed``, or before it."""
        for index, block in enumerate(job.blocks[: blocks_for(job.computed)]):
            has = index * BLOCK + self.filled[block]
            if has < min(job.computed, (index + 1) * BLOCK) and not self._filled_now(block):
                return has
        return job.computed

    def _filled_now(self, block: Block) -> bool:
        """Whether another call of this step writes the rest of ``block`` (and this one only reads it)."""
        given = self.batch.tokens.items() if self.batch else ()
        whole = (job.blocks[job.computed // BLOCK : (job.computed + n) // BLOCK] for job, n in given)
        return any(block in blocks for blocks in whole)

    def _run(self, rows: Sequence[Row]) -> tuple[float, float, torch.Tensor]:
        cuda = self.model.device.type == "cuda"
        clock = time.perf_counter if cuda else time.process_time
        took, on_device = [], [0.0]
        for _ in range(self.repeat):
            begin = clock()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else []
            if cuda:
                marks[0].record()
            logits = self.model.step(rows)
            if len(logits):
                logits.argmax(-1).tolist()
            if cuda:
                marks[1].record()
                torch.cuda.synchronize()
            took.append(clock() - begin)
            on_device += [marks[0].elapsed_time(marks[1]) / 1e3] if cuda else []
        return statistics.median(took), statistics.median(on_device[-self.repeat :]), logits

    def _emit(self, jobs: Sequence[Job], logits: torch.Tensor) -> None:
        best = [each.tolist() for each in logits.log_softmax(-1).max(-1)] if jobs else [[], []]
        for job, logprob, token in zip(jobs, *best, strict=True):
            served = self._open[job.call.seq]
            served.tokens.append(token)
            served.logprobs.append(logprob)
            self._texts.replies[job.body.output_id].append(token)


class PagedEngine(ReferenceEngine):
    """``reference`` whose steps run on a model (options that move KV to the host are not supported).

    The KV manager enters a block in the prefix cache when its tokens are scheduled; a call that loses its
    blocks later in the same pass could leave one there that nobody fills. ``Execution`` keeps what each page
    really holds, computes what is missing, and counts it (``again``).
    """

    name = "paged"

    def __init__(self, id: int, config: EngineConfig, scheduler: Scheduler, execution: Execution) -> None:  # noqa: A002
        if config.preemption == "swap" or config.host_tier:
            raise ValueError("the paged engine keeps no KV in host memory: preemption recompute or hold")
        if config.max_model_len > execution.model.shape.max_len:
            raise ValueError(f"max_model_len must be at most {execution.model.shape.max_len}, the model's")
        super().__init__(id, config, scheduler, execution)
        self.execution = execution

    def give(self, job: Job, n: int, blocks: int) -> None:
        """See ``EngineState``; the new blocks hold nothing yet."""
        held = len(job.blocks)
        super().give(job, n, blocks)
        self.execution.filled.update(dict.fromkeys(job.blocks[held:], 0))

    def leave(self, job: Job) -> None:
        """See ``EngineState``."""
        super().leave(job)
        self.execution.forget(job)

    def _schedule(self, preempted: list[int]) -> Batch:
        self.execution.batch = batch = super()._schedule(preempted)
        return batch
