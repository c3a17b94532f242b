"""The paged engine in PyTorch against plain forward passes, and against the simulator's decisions."""

import json
import os
import subprocess

import pytest

from systems.engines.vllm_virtual import ROOT, vllm_python

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def found():
    command = [vllm_python(), "-m", "tests.live.inside_paged"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_token_is_the_one_of_a_plain_forward_pass(found):
    for verdict in found["all"]:
        assert verdict["wrong"] == 0, verdict
        assert verdict["delta"] < 1e-4, verdict
        assert verdict["calls"] == 36, verdict


def test_the_check_meets_preemption_shared_prefixes_and_chunks(found):
    cached = [verdict for verdict in found["all"] if "no-cache" not in verdict["name"]]
    assert all(verdict["hit_tokens"] > 500 for verdict in cached)
    assert all(verdict["preemptions"] > 0 for verdict in found["all"])
    assert {verdict["name"].split()[0] for verdict in found["all"]} >= {"fcfs", "plas", "atlas", "mlfq"}


def test_a_page_that_holds_nothing_is_computed_again(found):
    verdicts = [verdict for verdict in found["emptied"] if "no-cache" not in verdict["name"]]
    assert all(verdict["again"] > 0 and verdict["wrong"] == 0 for verdict in verdicts)
    assert all(verdict["delta"] < 1e-4 for verdict in verdicts)


def test_a_page_that_lies_is_found_out(found):
    said = found["forgotten"]
    assert isinstance(said, str) or any(v["wrong"] or v["delta"] > 1e-2 for v in said)


def test_the_engine_stays_within_six_hundred_lines():
    files = (ROOT / "benchmarks" / "paged_engine").glob("*.py")
    assert sum(len(path.read_text().splitlines()) for path in files) <= 600
