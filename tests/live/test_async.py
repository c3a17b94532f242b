"""Our class over vLLM's AsyncScheduler: a step is scheduled before the one in front of it has ended."""

import os
import pickle
import subprocess
from statistics import mean

import pytest

from systems.engines.vllm_virtual import ROOT, vllm_python

pytestmark = pytest.mark.live

SEEDS = range(6)
POLICIES = ("fcfs", "mlfq", "plas", "atlas")
JOBS = [("own", "fcfs", seed) for seed in SEEDS] + [("ours", p, seed) for p in POLICIES for seed in SEEDS]


@pytest.fixture(scope="module")
def results():
    """By (class, scheduler, seed)."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [str(vllm_python()), "-m", "tests.live.inside_async"],
        input=pickle.dumps(JOBS), capture_output=True, env=environment, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return dict(zip(JOBS, pickle.loads(done.stdout), strict=True))


def ours(results):
    return {job: result for job, result in results.items() if job[0] == "ours"}


def test_every_call_gets_exactly_its_tokens(results):
    """Preempted, resumed or finished with a step in flight: each token once, in its place."""
    for job, result in results.items():
        for name, said in result["expected"].items():
            if name in result["left"]:
                assert result["said"].get(name, []) == said[: len(result["said"].get(name, []))], (job, name)
            else:
                assert result["said"][name] == said, (job, name)


def test_no_block_and_no_book_is_left_over(results):
    for job, result in results.items():
        assert result["free"] == result["blocks"], job
    assert {result["open"] for result in ours(results).values()} == {(0, 0, 0)}


def test_fcfs_takes_the_steps_of_vllms_own(results):
    preemptions = 0
    for seed in SEEDS:
        own, mine = results["own", "fcfs", seed], results["ours", "fcfs", seed]
        assert mine["steps"] == own["steps"], seed
        assert mine["ends"] == own["ends"]
        preemptions += own["preemptions"]
    assert preemptions > 10


def test_time_adds_up_and_steps_are_counted(results):
    """A row has the steps in which its call was, but for those still in flight when it left."""
    for result in ours(results).values():
        by_call = {row.call.seq: row for row in result["rows"]}
        assert len(by_call) == len(result["expected"])
        for seq, name in enumerate(result["expected"]):  # calls are numbered as they come
            row = by_call[seq]
            assert row.t_end - row.t_arrive == row.prefill_s + row.reprefill_s + row.decode_s + row.wait_s
            assert row.wait_s >= 0
            most = result["scheduled"].get(name, 0)
            assert most - 1 - row.aborted <= row.steps <= most
            if not row.aborted:
                assert row.output_tokens == len(result["said"][name])
                assert row.prefill_tokens + row.cached_tokens >= row.call.prompt_tokens or row.preemptions


def test_calls_wait_and_run_in_turn(results):
    for result in ours(results).values():
        for waits in result["waits"]:
            times = [time for time, _ in waits]
            assert times == sorted(times)
            inner = [what for _, what in waits[1:-1]]
            assert inner == ["admit" if i % 2 == 0 else "preempt" for i in range(len(inner))]


def test_policies_decide(results):
    """Victims are displaced, quanta expire, starving calls are promoted; short programs gain."""
    for policy in POLICIES[1:]:
        tally = [results["ours", policy, seed]["tally"] for seed in SEEDS]
        for rule in ("displace", "expire", "promote", "evict", "abort"):
            assert sum(t.get(rule, 0) for t in tally) >= 1, (policy, rule)
        assert short(results, policy) < short(results, "fcfs")


def short(results, policy):
    rows = [r for seed in SEEDS for r in results["ours", policy, seed]["rows"] if not r.aborted]
    return mean(row.t_end - row.t_arrive for row in rows if row.output_tokens <= 16)
