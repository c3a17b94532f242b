"""What test_vllm_virtual runs under the Python of vLLM.

``run``: independent calls through vLLM's own scheduler, nothing of ours
inside. ``serve``: our class as a server has it, configured by
additional-config, on the real clock.

Reads a pickled ([(EngineConfig, latency, [(call, body, arrival)])], call log)
from stdin (the step log is that name + ".steps"); writes the pickled steps,
[(start, seconds, ((seq, tokens), ...))], of each job to stdout.
"""

import os
import pickle
import sys
import time

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from systems.vllm_host.worker import Vocabulary, build_scheduler
from vocabulary import BLOCK, EngineConfig


def run(config, latency, calls):
    scheduler = build_scheduler(config, cls=Scheduler, order="fcfs")
    hash_fn = get_hash_fn_by_name("sha256")
    init_none_hash(hash_fn)
    words, hasher = Vocabulary(config.max_model_len + 1), get_request_block_hasher(BLOCK, hash_fn)
    bodies = {str(call.seq): body for call, body, _ in calls}
    todo, now, steps = list(calls), 0.0, []
    while todo or scheduler.requests:
        if not scheduler.requests:
            now = max(now, todo[0][2])
        while todo and todo[0][2] <= now:
            call, body, at = todo.pop(0)
            params = SamplingParams(max_tokens=body.output_tokens, ignore_eos=True)
            prompt = words.tokens(body.prompt)
            scheduler.add_request(
                Request(str(call.seq), prompt, params, None, arrival_time=at, block_hasher=hasher)
            )
        now = step(scheduler, latency, bodies, words, now, steps)
    return steps


def step(scheduler, latency, bodies, words, now, steps):
    """One step at ``now``; returns its end."""
    output = scheduler.schedule()
    batch = output.num_scheduled_tokens
    if not batch:
        scheduler.update_from_output(output, ModelRunnerOutput([], {}))
        return now
    prefills, contexts, sampled = [], [], []
    admitted = {r.req_id for r in output.scheduled_new_reqs} | output.scheduled_cached_reqs.resumed_req_ids
    for name, tokens in batch.items():
        request = scheduler.requests[name]
        if name in admitted:
            request.fresh = True
        if request.fresh:
            prefills.append((tokens, request.num_computed_tokens - tokens))
        else:
            contexts.append(request.num_tokens)
        if request.is_prefill_chunk:
            sampled.append([])
        else:
            request.fresh = False
            sampled.append([words.base(bodies[name].output_id) + request.num_output_tokens])
    seconds = latency.step(prefills, len(contexts), sum(contexts))
    steps.append((now, seconds, tuple((int(name), tokens) for name, tokens in batch.items())))
    ids = list(batch)
    scheduler.update_from_output(output, ModelRunnerOutput(ids, {n: i for i, n in enumerate(ids)}, sampled))
    return now + seconds


def serve(log):
    """Program a asks twice and b once at the same time; a call of nobody is aborted."""
    knobs = {"bounds": [3.0], "beta": 1e9}  # on the real clock: nobody is promoted, however slow the machine
    options = {"scheduler": "plas", "knobs": knobs, "preemption": "hold"}
    options |= {"log": log, "steps": log + ".steps"}
    scheduler = build_scheduler(EngineConfig(20, 1, 64, 256, prefix_cache=False), additional=options)
    callers = [{"program_id": "a", "thread_id": "t"}, {"program_id": "b"}, {"program_id": "a"}, None]
    for number, caller in enumerate(callers):
        params = SamplingParams(max_tokens=5, ignore_eos=True, extra_args=caller)
        scheduler.add_request(Request(f"cmpl-{number}", list(range(20)), params, None))
    scheduler.finish_requests("cmpl-3", RequestStatus.FINISHED_ABORTED)
    while scheduler.requests:
        output = scheduler.schedule()
        ids = list(output.num_scheduled_tokens)
        time.sleep(0.001)
        tokens = [[9] for _ in ids]
        scheduler.update_from_output(
            output, ModelRunnerOutput(ids, {n: i for i, n in enumerate(ids)}, tokens)
        )
    scheduler.shutdown()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs, log = pickle.load(sys.stdin.buffer)
    serve(log)
    pickle.dump([run(*job) for job in jobs], answers)
    answers.close()
