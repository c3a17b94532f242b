"""One real vLLM in a fleet of another process: what it tells, and that kill -9 of its owner ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from systems.engines.vllm_virtual import ROOT
from systems.provision.attach import Attached
from systems.provision.process import group
from systems.provision.recipe import asked
from systems.vllm_host.control import Client

pytestmark = [pytest.mark.live, pytest.mark.slow]

OWNER = """
import json, sys
from pathlib import Path
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.provision.fleet import Fleet
from systems.vllm_host.tiny import write
folder = Path(sys.argv[1])
options = ServerOptions(
    write(folder / "model"), scheduler="atlas", kv_blocks=40, max_num_seqs=4, max_num_batched_tokens=64,
    max_model_len=600, engine=7, control=True,
)
server = VllmServer(options, folder / "engine")
with Fleet([server], lambda line: print(line, file=sys.stderr)):
    print(json.dumps([server.pid, server.url, server.control, dict(server.facts())]), flush=True)
    sys.stdin.read()
"""
PROMPT = list(range(3, 103))


class Owner:
    """The process that owns the server, and what it said of it."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder)], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.leader, self.url, self.control, self.facts = json.loads(line)
        self.log = folder / "engine" / "calls.jsonl"


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    found = Owner(tmp_path_factory.mktemp("owner"))
    yield found
    if found.process.poll() is None:
        found.process.communicate("", timeout=60)
    assert dict(group(found.leader)) == {}


def post(url, body=None, **headers):
    """(JSON of the answer, its headers)."""
    data = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json", **headers}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read()), answer.headers


def complete(owner, program, **headers):
    body = {
        "model": "tiny-llama", "prompt": PROMPT, "max_tokens": 8, "ignore_eos": True,
        "vllm_xargs": {"program_id": program},
    }  # fmt: skip
    return post(f"{owner.url}/v1/completions", body, **headers)


def cached(reply):
    return (reply["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def test_a_reply_says_what_was_cached_and_a_flush_empties_the_cache(owner):
    assert cached(complete(owner, "a")[0]) == 0
    assert cached(complete(owner, "b")[0]) == 96
    answer, _ = post(f"{owner.url}/reset_prefix_cache")
    assert answer == {"success": True}
    assert cached(complete(owner, "c")[0]) == 0


def test_a_reply_tells_its_times_and_its_name(owner):
    reply, headers = complete(owner, "d", X_Request_Id="mine")
    assert headers["X-Request-Id"] == "mine"
    assert reply["metrics"]["time_to_first_token_ms"] > 0


def test_the_tiny_model_takes_chats(owner):
    chat = {"model": "tiny-llama", "messages": [{"role": "user", "content": "how?"}], "max_tokens": 4}
    reply, _ = post(f"{owner.url}/v1/chat/completions", chat | {"ignore_eos": True})
    assert reply["usage"]["completion_tokens"] == 4


def test_the_facts_and_the_engines_id(owner):
    assert owner.facts["version"] == asked(owner.url, "/version")["version"]
    assert "--enable-per-request-metrics" in owner.facts["command"]
    complete(owner, "e")
    rows = [json.loads(line) for line in owner.log.read_text().splitlines()]
    assert {row["engine"] for row in rows} == {7}


def test_an_attached_engine_is_asked_and_left_alone(owner):
    engine = Attached(owner.url, control=owner.control, calls=owner.log)
    engine.begin()
    engine.ready(10.0)
    assert (engine.facts()["kind"], engine.facts()["models"]) == ("vllm", ["tiny-llama"])
    assert engine.facts()["max_model_len"] == 600
    engine.stop()
    engine.check()


def test_its_control_socket_answers(owner):
    with Client(owner.control) as client:
        client.send("end", program="a")
        complete(owner, "f")  # it reads its messages at a step
        assert Path(owner.control).is_socket()


def test_kill_9_of_its_owner_leaves_nothing(owner):
    """The last one. Its guard ends the server; docs/provisioning.md: why one is needed."""
    assert len(dict(group(owner.leader))) >= 2
    os.kill(owner.process.pid, 9)
    owner.process.wait()
    until = time.monotonic() + 30
    while left := dict(group(owner.leader)):
        assert time.monotonic() < until, left
        time.sleep(0.1)
