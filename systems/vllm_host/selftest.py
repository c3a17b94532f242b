"""Whether our scheduler class works in the vLLM it finds: run under that vLLM's Python, no model, no GPU.

    python -m systems.vllm_host.selftest

prints one JSON object per line: {"name": .., "holds": .., "said": ..}. ``bench doctor --vllm-python`` reads
them; docs/doctor.md says what each is. tests/live checks the same, and much more.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vllm import __version__ as vllm_version
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from systems.vllm_host.options import HostOptions
from systems.vllm_host.scheduler import PolicyAsyncScheduler, PolicyMixin, PolicyScheduler
from systems.vllm_host.worker import build_scheduler
from vocabulary import BLOCK, EngineConfig

STEP_S = 2.0**-7
MOST_STEPS = 20_000
"""A run that is longer does not come to an end."""
NARROW = {"unit": "step", "bounds": [4.0, 16.0], "beta": 1.0}
"""Queues that calls of a few tokens cross."""
FIRST_TOKEN = 10_000
"""The token at position p of a sequence is FIRST_TOKEN + p, so that a lost or doubled one shows."""


class Failed(Exception):
    """What is wrong, in a line."""


class Bench:
    """A scheduler and a loop around it with ``depth`` steps in flight; each takes STEP_S (virtual)."""

    def __init__(self, config: EngineConfig, cls: type[Any], depth: int = 1, **options: Any) -> None:
        self.now = 0.0
        self.depth = depth
        self.total = config.kv_blocks
        self.said: dict[str, list[int]] = {}
        self.asked: dict[str, tuple[int, int]] = {}
        self.rows: list[Any] = []
        hash_fn = get_hash_fn_by_name("sha256")
        init_none_hash(hash_fn)
        self._hasher = get_request_block_hasher(BLOCK, hash_fn)
        host = HostOptions(**options)
        self.scheduler = build_scheduler(
            config, cls=cls, clock=lambda: self.now, options=host, whole_batches=depth > 1
        )
        self.scheduler.on_close = lambda account: self.rows.append(account.row)

    def call(self, prompt: list[int], output: int, program: str | None = None) -> None:
        """Submit a call of ``output`` tokens; without a program it is a program of one call."""
        name = f"call-{len(self.asked)}"
        self.asked[name] = (len(prompt), output)
        params = SamplingParams(
            max_tokens=output, ignore_eos=True, extra_args={"program_id": program} if program else None
        )
        at = float(len(self.asked))
        self.scheduler.add_request(
            Request(name, prompt, params, None, arrival_time=at, block_hasher=self._hasher)
        )

    def run(self) -> None:
        """Until nobody is left."""
        queue: deque[tuple[Any, Any]] = deque()
        for _ in range(MOST_STEPS):
            if not self.scheduler.requests and not queue:
                return
            while len(queue) < self.depth and self.scheduler.has_requests():
                output = self.scheduler.schedule()
                queue.append((output, self._computed(output)))
            self.now += STEP_S
            self._take(*queue.popleft())
        raise Failed(f"{len(self.scheduler.requests)} calls are still there after {MOST_STEPS} steps")

    def _computed(self, output: Any) -> Any:
        names = list(output.num_scheduled_tokens)
        here = [self.scheduler.requests[name] for name in names]
        tokens = [[] if one.is_prefill_chunk else [FIRST_TOKEN + one.num_computed_tokens] for one in here]
        return ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, tokens)

    def _take(self, output: Any, result: Any) -> None:
        for group in self.scheduler.update_from_output(output, result).values():
            for one in group.outputs:
                self.said.setdefault(one.request_id, []).extend(one.new_token_ids)

    def check(self) -> None:
        """Raises Failed unless every call got its tokens in place, times add up, and nothing is left over."""
        for name, (prompt, output) in self.asked.items():
            expected = [FIRST_TOKEN + prompt + i for i in range(output)]
            if self.said.get(name) != expected:
                raise Failed(f"{name} got {len(self.said.get(name, []))} tokens, not its {output} in order")
        for row in self.rows:
            parts = row.prefill_s + row.reprefill_s + row.decode_s + row.wait_s
            if row.t_end - row.t_arrive != parts:
                raise Failed(f"call {row.call.seq}: {row.t_end - row.t_arrive} s, its parts {parts} s")
        if len(self.rows) != len(self.asked):
            raise Failed(f"{len(self.rows)} rows of {len(self.asked)} calls")
        free = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        if free != self.total:
            raise Failed(f"{self.total - free} KV blocks are lost")
        if left := len(self.scheduler.accounts) + len(self.scheduler.by_seq):
            raise Failed(f"{left} entries of our books are left over")


def loads() -> str:
    """Our class is one of vLLM's, and what it overrides is there."""
    for ours, theirs in ((PolicyScheduler, Scheduler), (PolicyAsyncScheduler, AsyncScheduler)):
        if not issubclass(ours, theirs):
            raise Failed(f"{ours.__name__} is no {theirs.__name__}")
    named = [name for name, what in vars(PolicyMixin).items() if inspect.isfunction(what)]
    shared = [name for name in named if hasattr(Scheduler, name) and name != "__init__"]
    needed = {"add_request", "schedule", "update_from_output", "_preempt_request", "_free_request"}
    if gone := sorted(needed - set(shared)):
        raise Failed(f"vLLM's Scheduler has no {', '.join(gone)}")
    return f"over vLLM {vllm_version}'s Scheduler and AsyncScheduler, {len(shared)} of its methods overridden"


def serves() -> str:
    """In a server's place, on the real clock: additional-config, callers from vllm_xargs, a log, an abort."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "calls.jsonl")
        options = {"scheduler": "plas", "knobs": {"bounds": [3.0]}, "log": str(log)}
        scheduler = build_scheduler(EngineConfig(20, 1, 64, 256, prefix_cache=False), additional=options)
        callers = [{"program_id": "a", "thread_id": "t"}, {"program_id": "b"}, {"program_id": "a"}, None]
        for number, caller in enumerate(callers):
            params = SamplingParams(max_tokens=5, ignore_eos=True, extra_args=caller)
            scheduler.add_request(Request(f"cmpl-{number}", list(range(20)), params, None))
        scheduler.finish_requests("cmpl-3", RequestStatus.FINISHED_ABORTED)
        steps = 0
        while scheduler.requests and steps < MOST_STEPS:
            output, steps = scheduler.schedule(), steps + 1
            names = list(output.num_scheduled_tokens)
            result = ModelRunnerOutput(names, {n: i for i, n in enumerate(names)}, [[9] for _ in names])
            scheduler.update_from_output(output, result)
        scheduler.shutdown()
        rows = [json.loads(line) for line in log.read_text().splitlines()]
    found = {row["request_id"]: (row["output_tokens"], row["aborted"]) for row in rows}
    expected = {f"cmpl-{i}": (5, False) for i in range(3)} | {"cmpl-3": (0, True)}
    if found != expected:
        raise Failed(f"the call log has {found}")
    preempted = sum(row["preemptions"] for row in rows)
    if not preempted:
        raise Failed("no call was displaced in one place, with a quantum of 3 steps")
    return f"4 calls, 1 aborted, {preempted} times displaced; all in the call log"


def _crowd(cls: type[Any], depth: int, preemption: str) -> str:
    """Long and short calls for few places and little KV, some with a common start."""
    config = EngineConfig(40, 4, 64, 1024)
    bench = Bench(config, cls, depth, scheduler="plas", knobs=NARROW, preemption=preemption)
    for i in range(24):
        prompt = list(range(33)) + [1000 * (i + 1) + k for k in range(5 + 7 * i % 60)]
        bench.call(prompt, 80 if i % 4 == 0 else 3 + i % 9, f"p{i % 11}")
    bench.run()
    bench.check()
    preempted = sum(row.preemptions for row in bench.rows)
    if not preempted:
        raise Failed("24 calls in 4 places, and nobody was preempted")
    return f"24 calls in 4 places, {preempted} preemptions: every token once and in place, no block lost"


def retention() -> str:
    """What is kept survives a flood, what is not does not, and everything is given back."""
    cases: dict[str, tuple[Mapping[str, Any], int]] = {
        "nothing kept": ({"retention": "none"}, 0),
        "kept by a policy": ({"retention": "pin", "retention_knobs": {"seconds": 60.0}}, 160),
    }
    for name, (options, expected) in cases.items():
        bench = Bench(EngineConfig(40, 4, 512, 2048), PolicyScheduler, **options)
        start = [5000 + i for i in range(160)]
        bench.call(start, 1, "a")
        bench.run()
        for i in range(20):
            bench.call([10_000 * (i + 2) + k for k in range(160)], 1)
            bench.run()
        bench.call([*start, *range(20)], 1, "a")
        bench.run()
        found = bench.rows[-1].cached_tokens
        if found != expected:
            raise Failed(f"{name}: {found} tokens were still cached after 20 other calls, not {expected}")
        bench.scheduler.reset_prefix_cache()
        bench.check()
    return "160 tokens that were kept outlived 20 other calls; without it they did not"


ITEMS: Mapping[str, Callable[[], str]] = {
    "our class loads": loads,
    "a server's scheduler": serves,
    "one step in flight": lambda: _crowd(PolicyScheduler, 1, "recompute"),
    "one step in flight, hold": lambda: _crowd(PolicyScheduler, 1, "hold"),
    "two steps in flight (async)": lambda: _crowd(PolicyAsyncScheduler, 2, "recompute"),
    "retention": retention,
}


def main() -> None:
    """One line per item, on a stdout that nothing else writes to."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name, item in ITEMS.items():
        try:
            holds, said = True, item()
        except Failed as failed:
            holds, said = False, str(failed)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            holds, said = False, f"{type(error).__name__} at {place}: {error}"
        print(json.dumps({"name": name, "holds": holds, "said": said}), file=out, flush=True)


if __name__ == "__main__":
    main()
