"""KV kept for programs that are away, in vLLM's own block pool; every step's blocks are counted inside."""

import json
import os
import pickle
import subprocess

import pytest

from systems.engines.vllm_virtual import ROOT, vllm_python

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("control") / "engine.sock"
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(vllm_python()), "-m", "tests.live.inside_retention", str(path)],
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT), **quiet}, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def test_what_is_kept_survives_a_flood_until_its_deadline(results):
    found = results["survival"]
    cached = {name: tokens for name, (tokens, *_) in found.items()}
    assert cached == {"nothing": 0, "asked by the call": 160, "by the policy": 160, "past its deadline": 0}
    for name in ("asked by the call", "by the policy"):
        assert found[name][1]["hits"] == 1
        assert found[name][1]["given_up"] == 0
    assert found["past its deadline"][1]["expired"] == 1


def test_a_policy_that_learns_runs_in_a_server_by_itself(results):
    """Continuum keeps a thread for 2 s while its tool takes at most that on average.

    Two threads come later; no step began meanwhile, so that what they left was still kept.
    """
    events, count = results["learning"]
    verdicts = [event["what"] for event in events if event["what"] in ("keep", "evict")]
    assert verdicts == ["keep"] * 7 + ["evict"] * 4
    assert [event["what"] for event in events].count("back") == 10
    assert {event["tool"] for event in events} == {"bash"}
    assert (events[0]["thread"], events[0]["tokens"]) == ("", 120)
    assert (count["pinned"], count["hits"], count["expired"]) == (7, 7, 0)


def test_nobody_waits_and_nobody_is_preempted_for_what_is_kept(results):
    (plain, preemptions, _), *others = results["pressure"]
    assert preemptions > 10
    assert len(others) == 2  # the last policy never says whom to give up
    for kept, kept_preemptions, count in others:
        assert kept == plain
        assert kept_preemptions == preemptions
        assert count["given_up"] > 20


def test_clients_drop_keep_and_ask(results):
    cached, answers, exists, free = results["order"]
    assert (cached["a"], cached["b"], cached["c"]) == (0, 160, 160)
    nonsense, before, released, ended, after = map(json.loads, answers)
    assert "one JSON object" in nonsense["error"]
    assert (before["pins"], before["programs"], released["released"]) == (1, 3, 1)
    assert (ended["ended"], after["pins"], after["programs"], after["reclaimable_blocks"]) == (True, 0, 2, 0)
    assert not exists
    assert free == 51


def test_a_thousand_operations_leave_nothing(results):
    for free, count, owners in results["random"]:
        assert (free, owners) == (48, 0)
        for what in ("pinned", "expired", "given_up", "hits", "released"):
            assert count[what] >= 1, what
        assert count["pinned"] == count["expired"] + count["given_up"] + count["released"]
