"""What test_async runs under the Python of vLLM: a step in flight while the next one is scheduled.

The loop is that of vLLM's engine core with a batch queue of two: it schedules whenever fewer than two steps
are in flight, and only then waits for the oldest. The model runs one step after the other on a virtual clock.

Reads pickled jobs, [(cls, scheduler, seed)] with cls "own" (vLLM's AsyncScheduler) or "ours"; writes the
pickled results, one dictionary each.
"""

import os
import pickle
import sys
from collections import deque
from random import Random

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from systems.vllm_host.options import HostOptions
from systems.vllm_host.scheduler import PolicyAsyncScheduler
from systems.vllm_host.worker import build_scheduler
from tests.latency_models import LinearLatency
from vocabulary import BLOCK, EngineConfig, blocks_for, on_grid

STOP = 7  # a token id no prompt has


def programs(seed):
    """[(arrival, [(new prompt tokens, reply length, stops early)])]: long and short, some share a start."""
    rng, made = Random(seed), []
    for number in range(30):
        long = number % 5 == 0
        arrival = on_grid(0.0 if number < 6 else rng.random() * 2)
        calls = []
        for _ in range(rng.randint(3, 5) if long else rng.randint(1, 2)):
            reply = rng.randint(60, 120) if long else rng.randint(1, 16)
            calls.append((rng.choice([1, 15, 16, 17, 60, 150]), reply, rng.random() < 0.2))
        made.append((arrival, calls))
    return made


class Loop:
    """One scheduler, its programs, and the clock (seconds)."""

    def __init__(self, cls, policy, seed, hasher):
        self.now = self.busy_until = 0.0
        rng = Random(seed + 1000)
        largest = max(sum(new + reply for new, reply, _ in calls) for _, calls in programs(seed))
        blocks = blocks_for(largest) + (2, 8, 400)[seed % 3]
        config = EngineConfig(blocks, rng.choice([4, 6, 12]), rng.choice([16, 64, 256]), 2048)
        self.config, self.hasher, self.latency = config, hasher, LinearLatency()
        if cls == "own":
            self.scheduler = build_scheduler(config, cls=AsyncScheduler, order="priority")
        else:
            knobs = {} if policy == "fcfs" else {"bounds": [4.0, 16.0, 64.0], "beta": 1.0}
            options = HostOptions(scheduler=policy, knobs=knobs, preemption="recompute")
            self.scheduler = build_scheduler(
                config, cls=PolicyAsyncScheduler, clock=lambda: self.now, options=options, whole_batches=True
            )
            self.scheduler.on_close = lambda account: self.rows.append(account)
        self.rng, self.rows, self.steps, self.said, self.ends = rng, [], [], {}, {}
        self.todo = [(at, n, calls, []) for n, (at, calls) in enumerate(programs(seed))]
        self.left, self.requests = {}, {}
        self.scheduled = {}  # request id -> steps it was in
        self.leavers = {n for n in range(30) if rng.random() < 0.1}

    def submit(self, number, calls, context):
        new, reply, stops = calls[0]
        prompt = context + [100 + number % 3 if not context else 1000 + number] * new
        name = f"{number}-{len(calls)}"
        stop = len(prompt) + reply // 2 if stops else None
        params = SamplingParams(
            max_tokens=reply, ignore_eos=True, stop_token_ids=[STOP], extra_args={"program_id": number}
        )
        at = float(len(self.requests))
        request = Request(name, prompt, params, None, arrival_time=at, block_hasher=self.hasher)
        self.requests[name] = (request, number, calls, prompt, reply, stop)
        self.scheduler.add_request(request)

    def token(self, name, position):
        return STOP if position == self.requests[name][5] else 10_000 + position

    def run(self):
        queue = deque()
        while self.todo or self.scheduler.requests or queue:
            if not self.scheduler.requests and not queue and self.todo:
                self.now = max(self.now, min(self.todo)[0])
            for item in sorted(i for i in self.todo if i[0] <= self.now):
                self.todo.remove(item)
                self.submit(*item[1:])
            if self.scheduler.has_requests() and len(queue) < 2:
                queue.append(self.begin(self.scheduler.schedule()))
                if len(queue) < 2 and self.scheduler.has_requests():
                    continue
            self.end(*queue.popleft())
        return self.result()

    def begin(self, output):
        """The model will run it once it has done the one before."""
        batch = output.num_scheduled_tokens
        tokens, prefills, contexts = [], [], []
        for name, count in batch.items():
            request = self.scheduler.requests[name]
            self.scheduled[name] = self.scheduled.get(name, 0) + 1
            tokens.append([] if request.is_prefill_chunk else [self.token(name, request.num_computed_tokens)])
            prefills.append((count, request.num_computed_tokens - count)) if count > 1 else contexts.append(1)
        if batch:
            seconds = self.latency.step(prefills, len(contexts), 100 * len(contexts))
            self.busy_until = max(self.now, self.busy_until) + seconds
            self.steps.append(tuple(batch.items()))
        result = ModelRunnerOutput(list(batch), {n: i for i, n in enumerate(batch)}, tokens)
        return output, result, self.busy_until

    def end(self, output, result, at):
        self.now = max(self.now, at)
        if self.leavers and self.now > 1.0:  # clients leave, some with a step in flight
            mine = [
                n for n, r in self.requests.items() if r[1] in self.leavers and n in self.scheduler.requests
            ]
            self.leavers.difference_update(self.requests[n][1] for n in mine)
            self.scheduler.finish_requests(mine, RequestStatus.FINISHED_ABORTED)
            self.left.update(dict.fromkeys(mine))
        outputs = self.scheduler.update_from_output(output, result)
        for one in (o for group in outputs.values() for o in group.outputs):
            self.said.setdefault(one.request_id, []).extend(one.new_token_ids)
            if one.finish_reason is not None:
                self.finished(one.request_id)

    def finished(self, name):
        _, number, calls, prompt, _, _ = self.requests[name]
        self.ends[name] = self.now
        if len(calls) > 1 and name not in self.left:
            gap = on_grid(0.01 * (number % 3))
            self.todo.append((self.now + gap, number, calls[1:], prompt + self.said[name]))

    def result(self):
        pool = self.scheduler.kv_cache_manager.block_pool
        expected = {}
        for name, (_, _, _, prompt, reply, stop) in self.requests.items():
            last = len(prompt) + reply if stop is None else min(stop + 1, len(prompt) + reply)
            expected[name] = [self.token(name, p) for p in range(len(prompt), last)]
        result = {
            "steps": self.steps, "said": self.said, "expected": expected, "left": set(self.left),
            "free": pool.get_num_free_blocks(), "blocks": self.config.kv_blocks, "ends": self.ends,
            "scheduled": self.scheduled, "arrived": {n: r[0].arrival_time for n, r in self.requests.items()},
            "preemptions": sum(r[0].num_preemptions for r in self.requests.values()),
        }  # fmt: skip
        if hasattr(self.scheduler, "tally"):
            result["tally"] = dict(self.scheduler.tally)
            result["decisions"] = self.scheduler.decisions
            result["rows"] = [a.row for a in self.rows]
            result["waits"] = [a.waits for a in self.rows]
            books = self.scheduler
            result["open"] = (
                len(books.accounts),
                len(books.in_flight),
                len(books.by_seq),
            )
        return result


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs = pickle.load(sys.stdin.buffer)
    function = get_hash_fn_by_name("sha256")
    init_none_hash(function)
    shared = get_request_block_hasher(BLOCK, function)
    pickle.dump([Loop(*job, shared).run() for job in jobs], answers)
    answers.close()
