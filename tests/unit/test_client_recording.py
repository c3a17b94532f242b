"""Recording real clients: what is kept of their requests, and that they end when they must."""

import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from benchmarks.client_parts.commands import CLIENTS, FOLDER, FRUIT, Ended, run
from benchmarks.client_parts.engine import Heard, ScriptedEngine, has_results, offered, one_tool, sub_agent
from benchmarks.client_parts.scrub import Scrub

RECORDED = Path(__file__).parents[1] / "data" / "clients"
SESSION = "71023a0d-8941-4d10-84fe-a4ec6dd6c69e"
BODY = {
    "model": "m", "stream": True, "max_tokens": 5, "prompt_cache_key": SESSION, "started": 1796047365781,
    "metadata": {"user_id": json.dumps({"session_id": SESSION, "device_id": "9b2b84a04bb786d3"})},
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Secret words in /home/somebody"}]}],
    "tools": [{"name": "Bash", "description": "Their prose.", "input_schema": {"type": "object"}}],
}  # fmt: skip


def test_shapes_stay_and_words_ids_and_secrets_go():
    headers = {"Authorization": "Bearer sk-1", "X-Session": SESSION, "Host": "here:1", "User-Agent": "cli/1"}
    (call,) = Scrub().calls([Heard(0.0, "POST", "/v1/messages", headers, BODY)])
    text = json.dumps(call)
    assert not [
        word for word in ("Secret", "somebody", "prose", "sk-1", SESSION, "9b2b", "here") if word in text
    ]
    assert call["headers"] == {"Authorization": "Bearer <key>", "X-Session": "<id 1>", "User-Agent": "cli/1"}
    body = call["body"]
    assert (body["model"], body["stream"], body["max_tokens"], body["started"]) == ("m", True, 5, "<time>")
    assert body["prompt_cache_key"] == "<id 1>"
    assert json.loads(body["metadata"]["user_id"]) == {"session_id": "<id 1>", "device_id": "<id 2>"}
    assert body["messages"][0] == {"role": "user", "content": [{"type": "text", "text": "<30 characters>"}]}
    assert body["tools"][0]["name"] == "Bash"


def strings(value):
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_bodies_hold_no_text_of_anybodys(path):
    found = json.loads(path.read_text())
    assert found["version"]
    bodies = [one["body"] for one in found["calls"]]
    assert sum(map(len, bodies)) > 10
    long = [one for one in strings(bodies) if len(one) > 60 and one[:1] != "{"]
    assert long == []
    assert not [one for one in strings(bodies) if len(one.split()) > 3 and one[:1] != "{"]


def test_a_script_calls_a_tool_once_in_every_dialect():
    chat = {"tools": [{"type": "function", "function": {"name": "bash"}}], "messages": []}
    groups = {"tools": [{"type": "namespace", "name": "g", "tools": [{"name": "spawn_agent"}]}], "input": []}
    assert offered(chat) == {"bash": ""}
    assert offered(groups) == {"spawn_agent": "g"}
    assert one_tool(chat, 0).tool == "bash"
    assert one_tool({**chat, "messages": [{"role": "tool"}]}, 1).tool == ""
    assert (sub_agent(groups, 0).tool, sub_agent(groups, 0).group) == ("spawn_agent", "g")
    assert has_results({"messages": [{"content": [{"type": "tool_result"}]}]})
    assert not has_results({"messages": "x", "input": "y"})


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A client that is a shell script."""

    def install(text):
        path = tmp_path / "node_modules" / ".bin" / CLIENTS[0].name
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setenv(FOLDER, str(tmp_path))
        monkeypatch.setenv("OF_OURS", "secret")
        return CLIENTS[0]

    return install


def test_a_client_has_a_home_and_nothing_of_ours(installed, tmp_path):
    client = installed("cat fruit.txt; env; exit 3")
    ended = run(client, "http://gateway:1/", tmp_path / "x")
    assert ended.code == 3
    assert ended.output.startswith(FRUIT)
    lines = dict(line.partition("=")[::2] for line in ended.output.splitlines()[1:])
    assert lines["HOME"] == str(tmp_path / "x" / "home")
    assert lines["ANTHROPIC_BASE_URL"] == "http://gateway:1"
    assert "OF_OURS" not in lines


def test_a_client_that_does_not_end_is_ended_with_all_it_started(installed, tmp_path):
    client = installed(f"sleep 60 & echo $! > {tmp_path}/pid; wait")
    ended = run(client, "http://gateway:1", tmp_path / "x", limit_s=1.0)
    assert ended == Ended(-1, "", "")
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_client_that_is_not_installed_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(FileNotFoundError, match="claude is not in BENCH_CLIENTS"):
        run(CLIENTS[0], "http://gateway:1", tmp_path / "x")


def test_the_scripted_engine_stops_and_leaves_no_port():
    with ScriptedEngine() as engine:
        with urllib.request.urlopen(f"{engine.url}/v1/models", timeout=5) as answer:
            assert json.load(answer)["data"][0]["id"] == "scripted"
        assert [one.path for one in engine.heard] == ["/v1/models"]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{engine.url}/v1/models", timeout=5)
