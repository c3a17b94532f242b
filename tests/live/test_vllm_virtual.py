"""vLLM's own scheduler against our engines, step by step, over seeded scenarios (docs/engine.md)."""

import json
import os
import pickle
import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from systems.catalog import load_system, scheduler_names
from systems.engines.reference import ReferenceEngine
from systems.engines.sim import SimEngine
from systems.engines.vllm_virtual import ROOT, EngineUnavailable, VllmVirtualEngine, vllm_python
from systems.schedulers.fcfs import Fcfs
from systems.schedulers.mlfq import Mlfq
from tests.keeping import play_keeping, seeded_plan
from tests.latency_models import LinearLatency
from tests.live.seeded import scenario, scheduler, system
from tests.scenarios import play
from vocabulary import INF, Body, Call, EngineConfig, Snapshot

pytestmark = pytest.mark.live

SEEDS = range(20)
OFTEN = range(10)
"""Seeds of every change; the others are slow. Part a of `bench fidelity` plays all schedulers."""
SCHEDULERS = [n for n in scheduler_names() if not load_system("vllm-opt", scheduler=n).reads_cache]


class Pool:
    """Workers take seconds to start: one per engine number, reset for each scenario."""

    def __init__(self):
        self.engines = {}

    def make(self, preemption="recompute"):
        def make(number, config, policy, latency):
            if number not in self.engines:
                self.engines[number] = VllmVirtualEngine(
                    number, config, policy, latency, preemption=preemption
                )
            else:
                self.engines[number].reset(number, config, policy, latency, preemption=preemption)
            return self.engines[number]

        return make


@pytest.fixture(scope="module")
def pool():
    pool = Pool()
    yield pool
    for engine in pool.engines.values():
        engine.close()


def run(make, name, seed, engines=1):
    return play(make, scenario(seed, engines), scheduler(name, seed), rule=system(name, seed).rule)


def assert_same(vllm, ours):
    """Step by step first: the first difference is the one that explains the others."""
    for left, right in zip(vllm.steps, ours.steps, strict=True):
        for at, (a, b) in enumerate(zip(left, right, strict=False)):
            assert a == b, f"step {at}"
        assert len(left) == len(right)
    assert vllm.decisions == ours.decisions
    assert vllm.rows == ours.rows
    assert vllm.program_end == ours.program_end


@pytest.mark.parametrize(
    "seed", [seed if seed in OFTEN else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS]
)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_same_steps_as_the_reference_and_the_simulator(pool, name, seed):
    vllm = run(pool.make(), name, seed)
    reference = run(ReferenceEngine, name, seed)
    assert_same(vllm, reference)
    assert vllm.stats == [{k: s[k] for k in v} for v, s in zip(vllm.stats, reference.stats, strict=True)]
    assert_same(vllm, run(SimEngine, name, seed))
    assert pool.engines[0].view()[:4] == (0, True, 0, 0)


def test_the_scenarios_meet_every_rule():
    rules, hits, chunked = Counter(), 0, 0
    for name in SCHEDULERS:
        for seed in SEEDS:
            outcome = run(ReferenceEngine, name, seed)
            rules.update(decision.rule for decision in outcome.decisions)
            hits += outcome.stats[0]["hit_tokens"]
            chunked += sum(
                row.prefill_tokens > scenario(seed).config.max_num_batched_tokens for row in outcome.finished
            )
    for rule in ("arrive", "admit", "expire", "promote", "displace", "evict", "finish", "abort"):
        assert rules[rule] >= 10, rule
    assert hits > 10_000
    assert chunked > 100


@pytest.mark.parametrize("seed", [6, 7, 8, 15])
@pytest.mark.parametrize("name", ["plas", "atlas"])
def test_two_engines_share_what_calls_carry(pool, name, seed):
    """Without promotion: due times follow the live table, of which a worker has only snapshots."""
    assert ("beta", INF) in system(name, seed).scheduler_knobs
    assert_same(run(pool.make(), name, seed, engines=2), run(ReferenceEngine, name, seed, engines=2))


@pytest.mark.parametrize("firm", [False, True])
@pytest.mark.parametrize("preemption", ["recompute", "hold"])
@pytest.mark.parametrize(
    ("seed", "victims"), [(6, "by size"), (28, "reluctant"), (34, "turning"), (36, "default")]
)
def test_what_is_kept_and_dropped_is_what_the_simulator_keeps(pool, seed, victims, preemption, firm):
    """The plan acts at call ends and later; who is given up first is asked on this side."""
    case, plan, name = scenario(seed, engines=1), seeded_plan(seed), ("fcfs" if seed % 4 else "mlfq")
    mine = replace(case, config=replace(case.config, preemption=preemption))
    vllm = play_keeping(pool.make(preemption), case, scheduler(name, seed), plan, victims, firm=firm)
    ours = play_keeping(SimEngine, mine, scheduler(name, seed), plan, victims, firm=firm)
    assert_same(vllm[0], ours[0])
    assert vllm[1:] == ours[1:]
    (count,) = vllm[2]
    assert count["pinned"] == count["expired"] + count["given_up"] + count["released"] >= 10
    assert count["dropped_blocks"] > 0
    assert (count["given_up"] > 0) != (firm and seed == 6)


def test_same_run_twice(pool):
    first, second = (run(pool.make(), "atlas", 4) for _ in range(2))
    assert first.same(second)


# vLLM without our class


def independent_calls(seed):
    """(config, latency, calls): calls of one-shot programs that share a system prompt; tight KV."""
    rng = Random(seed)
    calls, at = [], 0.0
    for seq in range(40):
        prompt = ((7, rng.choice([16, 48, 100])), (100 + seq, rng.randint(1, 200)))
        tokens = sum(length for _, length in prompt)
        calls.append((Call(seq, seq, "", 0, tokens), Body(prompt, 1000 + seq, rng.randint(1, 120)), at))
        at += rng.choice([0, 1, 40]) / 1024
    seqs = rng.choice([3, 6, 12])
    config = EngineConfig(40 + 20 * (seed % 3), seqs, rng.choice([32, 128, 512]), 1024, record_steps=True)
    return config, LinearLatency(), calls


def feed(engine, calls):
    """Submit at arrival, run dry; the rows."""
    rows = []
    for call, body, at in calls:
        rows += run_until(engine, at)
        engine.submit(call, body, Snapshot(), at)
    return rows + run_until(engine, INF)


def run_until(engine, until):
    rows = []
    while engine.clock() < until:
        if engine.advance(until):
            rows += engine.collect()
    return rows


JOBS = [independent_calls(seed) for seed in range(12)]


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """(steps of vLLM's own scheduler for each of JOBS, call log and step log of our class in a server)."""
    log = tmp_path_factory.mktemp("served") / "calls.jsonl"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(vllm_python()), "-m", "tests.live.inside_vllm"]
    done = subprocess.run(
        command, input=pickle.dumps((JOBS, str(log))), capture_output=True, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr.decode()
    logs = (log, log.with_name(log.name + ".steps"))
    return pickle.loads(done.stdout), *(
        [json.loads(s) for s in path.read_text().splitlines()] for path in logs
    )


def test_our_fcfs_is_vllms_own(pool, inside):
    evicted = 0
    for job, plain in zip(JOBS, inside[0], strict=True):
        config, latency, calls = job
        engine = pool.make()(0, config, Fcfs(), latency)
        feed(engine, calls)
        assert [step[:3] for step in engine.steps] == plain
        evicted += engine.stats()["evicted"]
    assert evicted > 10


def test_the_class_in_a_servers_place(inside):
    """One slot, three steps of quantum, five to do: each call is held once, then they finish in turn."""
    rows = {row["request_id"]: row for row in inside[1]}
    assert list(rows) == ["cmpl-3", "cmpl-0", "cmpl-1", "cmpl-2"]
    assert rows["cmpl-3"]["aborted"]
    assert (rows["cmpl-0"]["program"], rows["cmpl-0"]["thread"]) == (rows["cmpl-2"]["program"], "t")
    for row in rows.values():
        parts = [row[name] for name in ("prefill_s", "reprefill_s", "decode_s", "wait_s")]
        assert sum(parts) == row["t_end"] - row["t_arrive"]
    del rows["cmpl-3"]
    for row in rows.values():
        assert [what for _, what in row["waits"]] == ["arrive", "admit", "hold", "admit", "end"]
        assert (row["output_tokens"], row["reprefill_tokens"]) == (5, 0)


def test_the_step_log_is_what_the_call_log_counts(inside):
    """One slot: a step has one call; its times lie in the call's, and their sum is what it was charged."""
    rows = {row["request_id"]: row for row in inside[1]}
    head, *steps = inside[2]
    assert abs(head["origin_wall"] - time.time()) < 600
    assert head["vllm"].count(".") == 2
    limits = [head[name] for name in ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size")]
    assert (head["scheduler"], limits) == ("plas", [1, 64, 20, 16])
    assert [s["running"] for s in steps] == [1] * 15
    assert [s["waiting"] for s in steps[:3]] == [2, 2, 2]
    assert [s["preempted"] for s in steps if s["preempted"]] == [["cmpl-0"], ["cmpl-1"], ["cmpl-2"]]
    for name in ("cmpl-0", "cmpl-1", "cmpl-2"):
        mine = [step for step in steps if step["calls"][0][0] == name]
        assert [s["calls"][0][1:] for s in mine] == [[0, 20, 1]] + [[20 + i, 1, 1] for i in range(4)]
        row = rows[name]
        assert mine[0]["start"] == row["t_first_sched"]
        assert mine[0]["end"] == row["t_first_token"]
        assert mine[-1]["end"] <= row["t_end"]
        assert sum(s["end"] - s["start"] for s in mine) == row["prefill_s"] + row["decode_s"]


# Hold


def said(outcome):
    """What each call said: its reply's length, by its place in its program."""
    return {(r.call.program, r.call.thread, r.call.index): r.output_tokens for r in outcome.finished}


def nobody_leaves(seed):
    whole = scenario(seed)
    return replace(whole, scripts=tuple(replace(script, leaves=None) for script in whole.scripts))


@pytest.mark.parametrize("name", SCHEDULERS)
def test_hold_says_the_same_and_leaks_nothing(pool, name):
    differ = displaced = 0
    again = {"recompute": 0, "hold": 0}
    for seed in range(12):
        outcomes, rule = {}, system(name, seed).rule
        for preemption in again:
            outcome = play(pool.make(preemption), nobody_leaves(seed), scheduler(name, seed), rule=rule)
            outcomes[preemption] = outcome
            view = pool.engines[0].view()
            assert (view.calls, view.kv_used) == (0, 0)
            again[preemption] += sum(row.reprefill_tokens for row in outcome.finished)
            for row in outcome.finished:
                parts = row.prefill_s + row.reprefill_s + row.decode_s + row.wait_s
                assert row.t_end - row.t_arrive == parts
            most = scenario(seed).config.max_num_seqs
            assert all(1 <= len(step.batch) <= most for step in outcome.steps[0])
        assert said(outcomes["hold"]) == said(outcomes["recompute"])
        differ += outcomes["hold"].steps != outcomes["recompute"].steps
        displaced += sum(int(stats["displaced"]) for stats in outcomes["recompute"].stats)
    if not displaced:  # one level: nobody is ever held
        assert differ == 0
    else:
        assert differ > 3
        assert again["hold"] < again["recompute"]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_hold_takes_the_same_steps_in_the_simulator(pool, name):
    for seed in range(4):
        whole = scenario(seed)
        holding = replace(whole, config=replace(whole.config, preemption="hold"))
        vllm = play(pool.make("hold"), whole, scheduler(name, seed), rule=system(name, seed).rule)
        assert_same(vllm, play(SimEngine, holding, scheduler(name, seed), rule=system(name, seed).rule))


def displaced_by_a_short_call(engine, long_tokens, short_tokens):
    """One slot: a long call is demoted to Q2 after 4 steps, then a short one comes."""
    engine.submit(Call(0, 0, "", 0, long_tokens), Body(((1, long_tokens),), 10, 40), Snapshot(), 0.0)
    run_until(engine, 0.08)
    engine.submit(
        Call(1, 1, "", 0, short_tokens), Body(((2, short_tokens),), 11, 3), Snapshot(), engine.clock()
    )
    return {row.call.seq: row for row in run_until(engine, INF)}


@pytest.mark.parametrize(
    ("preemption", "kv_blocks", "reprefilled"),
    [("hold", 20, 0), ("hold", 12, 1), ("recompute", 20, 1)],
    ids=["hold", "hold, KV short", "recompute"],
)
def test_what_a_displaced_call_pays(pool, preemption, kv_blocks, reprefilled):
    config = EngineConfig(kv_blocks, 1, 256, 1024, prefix_cache=False, record_steps=True)
    engine = pool.make(preemption)(0, config, Mlfq(bounds=(4.0,)), LinearLatency())
    rows = displaced_by_a_short_call(engine, 100, 64)
    long, short = rows[0], rows[1]
    assert (long.preemptions, short.preemptions) == (1 + (preemption == "hold" and bool(reprefilled)), 0)
    assert long.t_end > short.t_end
    assert (long.reprefill_tokens > 100) == bool(reprefilled)
    assert [d.rule for d in engine.decisions if d.call == 0].count("evict") == (
        preemption == "hold" and reprefilled
    )
    assert long.wait_s == sum(step.seconds for step in engine.steps if dict(step.batch).get(1))


# The process


def test_a_killed_worker_is_a_clear_error():
    engine = VllmVirtualEngine(3, EngineConfig(10, 2, 64, 256), Fcfs(), LinearLatency())
    with pytest.raises(ValueError, match=r"call 0 .* exceed max_model_len 256"):
        engine.submit(Call(0, 0, "", 0, 250), Body(((1, 250),), 2, 10), Snapshot(), 0.0)
    os.kill(engine._worker.process.pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(EngineUnavailable, match=r"vLLM process ended \(exit code -9\)"):
        engine.submit(Call(0, 0, "", 0, 16), Body(((1, 16),), 2, 1), Snapshot(), 0.0)
    assert time.monotonic() - started < 5
    engine.close()
    engine.close()


def test_an_error_inside_the_policy_shows_where(pool):
    engine = pool.make()(0, EngineConfig(10, 2, 64, 256), Fcfs(), LinearLatency())
    call = Call(0, 0, "", 0, 16)
    engine.submit(call, Body(((1, 16),), 2, 1), Snapshot(), 0.0)
    with pytest.raises(RuntimeError, match="submit failed in the worker"):
        engine.submit(call, Body(((1, 16),), 2, 1), Snapshot(), 0.0)
