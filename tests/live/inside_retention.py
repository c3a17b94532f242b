"""What test_retention runs under the Python of vLLM: KV kept for programs that are away.

``python -m tests.live.inside_retention SOCKET`` pickles its results to stdout.
"""

import json
import os
import pickle
import sys
from collections import Counter
from random import Random

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from systems.retentions.pin import Pin
from systems.vllm_host.control import Client
from systems.vllm_host.options import HostOptions
from systems.vllm_host.scheduler import PolicyScheduler
from systems.vllm_host.worker import build_scheduler
from vocabulary import BLOCK, INF, EngineConfig

STEP_S = 2.0**-7
HASH = get_hash_fn_by_name("sha256")
init_none_hash(HASH)
HASHER = get_request_block_hasher(BLOCK, HASH)


class Engine:
    """Our class without a model; every step takes STEP_S, and blocks are counted after each."""

    def __init__(self, config, **options):
        self.now, self.names, self.requests, self.rows = 0.0, 0, {}, []
        options = HostOptions(**options)
        self.scheduler = build_scheduler(config, cls=PolicyScheduler, clock=lambda: self.now, options=options)
        self.scheduler.on_close = lambda account: self.rows.append((account.row, account.waits))
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.total = config.kv_blocks

    def call(self, prompt, output=1, program=None, **extra):
        self.names += 1
        extra = {**extra, "program_id": program} if program is not None else None
        params = SamplingParams(max_tokens=output, ignore_eos=True, extra_args=extra)
        request = Request(str(self.names), prompt, params, None, arrival_time=self.now, block_hasher=HASHER)
        self.requests[request.request_id] = request
        self.scheduler.add_request(request)
        return request.request_id

    def step(self):
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        here = self.scheduler.requests
        tokens = [[] if here[n].is_prefill_chunk else [10_000 + here[n].num_tokens] for n in names]
        self.now += STEP_S
        self.scheduler.update_from_output(
            output, ModelRunnerOutput(names, {n: i for i, n in enumerate(names)}, tokens)
        )
        self.recount()

    def run(self):
        """Until nobody is left; the last row."""
        while self.scheduler.requests:
            self.step()
        return self.rows[-1][0]

    def recount(self):
        """Every block has the references of the calls and pins that hold it, and is free without any."""
        manager, keeper = self.scheduler.kv_cache_manager, self.scheduler.keeper
        refs = Counter()
        for name in self.scheduler.requests:
            refs.update(b.block_id for b in manager.get_blocks(name).blocks[0] if not b.is_null)
        for pin in keeper.pins.values() if keeper else ():
            refs.update(block.block_id for block in pin.blocks)
        if keeper:
            owners = Counter(block.block_id for pin in keeper.pins.values() for block in pin.blocks)
            only = sum(self.pool.blocks[number].ref_cnt == n for number, n in owners.items())
            assert (keeper.reclaimable(), keeper.pinned_blocks()) == (only, len(owners))
        free = {block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()}
        for block in self.pool.blocks:
            if not block.is_null:
                assert block.ref_cnt == refs[block.block_id], block
                assert (block.block_id in free) == (not block.ref_cnt), block
        assert self.pool.get_num_free_blocks() == len(free)


def text(number, tokens):
    return [number * 5000 + i for i in range(tokens)]


def flood(engine, calls=20):
    """Others' calls, one after the other, that pass through more blocks than there are."""
    for _ in range(calls):
        engine.call(text(1000 + engine.names, 160))
        engine.run()


def survival():
    """Cached tokens of a program's second call after a flood, by what was kept of its first."""
    found = {}
    for name, options, extra, away in (
        ("nothing", {"retention": "none"}, {}, 0),
        ("asked by the call", {"retention": "control"}, {"retain_s": 60.0}, 0),
        ("by the policy", {"retention": "pin", "retention_knobs": {"seconds": 60.0}}, {}, 0),
        ("past its deadline", {"retention": "pin", "retention_knobs": {"seconds": 1.0}}, {}, 2),
    ):
        engine = Engine(EngineConfig(40, 4, 512, 2048), **options)
        engine.call(text(1, 160), program="a", **extra)
        engine.run()
        engine.now += away
        flood(engine)
        engine.call(text(1, 160) + text(2, 20), program="a")
        row = engine.run()
        keeper = engine.scheduler.keeper
        found[name] = (
            row.cached_tokens,
            dict(keeper.count) if keeper else {},
            engine.pool.get_num_free_blocks(),
        )
    return found


def learning(path):
    """Continuum in a server by itself: what it thought of a tool that takes 1 s five times, then 5 s.

    From the eighth call on its mean is above the two seconds that it keeps for.
    """
    options = {"retention": "continuum-fixed", "kept": path}
    engine, context = Engine(EngineConfig(40, 4, 512, 2048), **options), text(1, 100)
    for turn in range(11):
        engine.call(context, 20, program="a", tool="bash")
        engine.run()
        engine.now += 1.0 if turn < 5 else 5.0
        context = context + text(10 + turn, 20)
    engine.scheduler.shutdown()
    with open(path) as file:
        return [json.loads(line) for line in file], dict(engine.scheduler.keeper.count)


class Silent(Pin):
    """Never says what to give up."""

    def victims(self, candidates, now):
        return []


def pressure():
    """(starts and ends of all calls, preemptions, counters) with nothing and with everything kept for ever.

    The last time by a policy that names no victims.

    A step takes a whole prompt, so that what a resumed call finds in the cache cannot change any time.
    """
    found = []
    forever = {"seconds": INF, "firm": False}
    for retention, knobs in (("none", {}), ("pin", forever), (f"{__name__}:Silent", forever)):
        rng = Random(3)
        engine = Engine(EngineConfig(60, 6, 4096, 2048), retention=retention, retention_knobs=knobs)
        for number in range(120):
            engine.call(text(100 + number, rng.randint(40, 300)), rng.randint(1, 150), program=number)
            for _ in range(rng.choice([0, 0, 1, 10])):
                engine.step()
        engine.run()
        waits = [(row.call.seq, waits) for row, waits in engine.rows]
        preemptions = sum(row.preemptions for row, _ in engine.rows)
        count = dict(engine.scheduler.keeper.count) if retention != "none" else {}
        found.append((waits, preemptions, count))
    return found


def order(path):
    """What a client's messages do to three idle programs: which is still cached after a flood."""
    engine = Engine(EngineConfig(51, 4, 512, 2048), control=path)
    answers = []
    with Client(path) as client:
        for number, name in enumerate("abc"):
            engine.call(text(1 + number, 160), program=name)
            engine.run()
        client.send("drop", program="a")
        client.send("retain", program="b", for_s=100)
        client._socket.send(b"nonsense")
        engine.call(text(50, 16))
        engine.run()
        answers.append(client._socket.recv(1000))
        flood(engine, 3)
        cached = {}
        for number, name in enumerate("abc"):
            probe = Request("probe", text(1 + number, 170), SamplingParams(), None, block_hasher=HASHER)
            cached[name] = engine.scheduler.kv_cache_manager.get_computed_blocks(probe)[1]
        of_b = {"program": "b"}
        for message in ({"op": "stats"}, {"op": "release", **of_b}, {"op": "end", **of_b}, {"op": "stats"}):
            client._socket.send(json.dumps(message).encode())
        engine.call(text(60, 16))
        engine.run()
        answers += [client._socket.recv(2000) for _ in range(4)]
    engine.scheduler.shutdown()
    return cached, answers, os.path.exists(path), engine.pool.get_num_free_blocks()


def random_operations(preemption, seed):
    """A thousand of them, blocks counted after every step; free blocks at the end, counters."""
    rng = Random(seed)
    options = {"scheduler": "plas", "knobs": {"bounds": [4.0, 16.0]}, "preemption": preemption}
    options |= {"retention": "pin", "retention_knobs": {"seconds": 0.3}}
    engine = Engine(EngineConfig(48, 4, 64, 2048), **options)
    keeper, context = engine.scheduler.keeper, {n: text(1 + n, 30) for n in range(8)}
    keeper.remember = True
    for _ in range(1000):
        what, program = rng.random(), rng.randrange(8)
        if what < 0.2 and len(engine.scheduler.requests) < 12:
            if len(context[program]) > 500:
                context[program] = context[program][: rng.choice([0, 16, 30])] + text(90 + program, 10)
            context[program] = context[program] + text(rng.randrange(50, 80), rng.randint(1, 60))
            extra = {"retain_s": rng.choice([0.0, 1.0]), "thread_id": str(rng.randrange(2))}
            engine.call(context[program], rng.randint(1, 40), program, **extra)
        elif what < 0.25:
            keeper.retain(program, engine.now + rng.random() * 5, rng.randrange(3))
        elif what < 0.35:
            rng.choice([keeper.release, keeper.drop, keeper.protect, keeper.end])(program)
        elif what < 0.37 and engine.scheduler.requests:
            name = rng.choice(sorted(engine.scheduler.requests))
            engine.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        elif what < 0.4:
            engine.now += rng.random()
        engine.recount()
        engine.step()
    engine.run()
    engine.scheduler.reset_prefix_cache()
    return engine.pool.get_num_free_blocks(), dict(keeper.count), len(keeper._owners)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    results = {
        "survival": survival(),
        "pressure": pressure(),
        "order": order(sys.argv[1]),
        "learning": learning(f"{sys.argv[1]}.kept"),
        "random": [random_operations(p, seed) for p in ("recompute", "hold") for seed in range(2)],
    }
    pickle.dump(results, answers)
    answers.close()
