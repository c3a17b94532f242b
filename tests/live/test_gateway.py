"""Our gateway before a real vLLM server: every endpoint that carries calls, charges from the scheduler's log,
clients that leave, programs that end."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.fidelity.server_calls import request_name
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.gateway.events_reader import read_events
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.process import GatewayProcess
from systems.vllm_host.control import Client
from systems.vllm_host.tiny import write

pytestmark = pytest.mark.live

MODEL = "tiny-llama"
CALLS = {
    "/v1/completions": {"prompt": [5, 6, 7, 8] * 10, "max_tokens": 6, "ignore_eos": True},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 6,
        "ignore_eos": True,
    },
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6},
    "/v1/responses": {"input": "hello", "max_output_tokens": 16},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    template = folder / "template.jinja"
    template.write_text(
        "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    )
    options = ServerOptions(
        write(folder / "model"),
        scheduler="atlas",
        max_num_seqs=4,
        max_model_len=2048,
        control=True,
        flags=("--chat-template", str(template)),
    )
    with VllmServer(options, folder) as server:
        yield server


@pytest.fixture
def gateway(server, tmp_path):
    target = Target(server.url, str(server.calls), server.control, max_num_batched_tokens=512)
    options = GatewayOptions((target,), system="autellix", log=str(tmp_path / "events.jsonl"))
    with GatewayProcess(options, tmp_path / "gateway") as gateway:
        eventually(lambda: healthy(gateway))
        yield gateway
        if gateway.pid:
            eventually(lambda: page(gateway, "/programs")["states"]["reasoning"] == 0)
    assert gateway.processes() == {}


def eventually(condition, limit_s=20.0):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def healthy(gateway):
    """It answers before it has seen its engines: 503 until then."""
    try:
        return page(gateway, "/health")["status"] == "ok"
    except urllib.error.HTTPError:
        return False


def page(gateway, path):
    with urllib.request.urlopen(gateway.url + path, timeout=10) as answer:
        return json.load(answer)


def post(gateway, path, body, **headers):
    data = json.dumps({"model": MODEL, **body}).encode()
    headers = {"Content-Type": "application/json"} | headers
    request = urllib.request.Request(gateway.url + path, data, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def program(gateway, name):
    return page(gateway, f"/programs/{name}")


def rows(server):
    return [json.loads(line) for line in server.calls.read_text().splitlines()]


@pytest.mark.parametrize("path", CALLS)
def test_every_kind_of_call_is_charged_what_its_scheduler_counted(server, gateway, path, tmp_path):
    before = len(rows(server))
    name = path.replace("/", "-")
    whole = json.loads(post(gateway, path, CALLS[path] | {"program_id": name}))
    assert "usage" in whole
    events = post(gateway, path, CALLS[path] | {"program_id": name, "stream": True}).decode()
    assert events.count("data: ") > 3
    mine = rows(server)[before:]
    assert [row["index"] for row in mine] == [0, 1]
    row = program(gateway, name)
    assert row["service"] == pytest.approx(sum(one["served"] for one in mine))
    assert row["exec_s"] == pytest.approx(sum(one["prefill_s"] + one["decode_s"] for one in mine))
    assert row["wait_s"] == pytest.approx(sum(one["wait_s"] for one in mine))
    gateway.stop()
    (run,) = read_events(tmp_path / "events.jsonl")
    assert [(call.source, call.outcome) for call in run.calls] == [("log", "finished")] * 2
    assert [call.output_tokens for call in run.calls] == [one["output_tokens"] for one in mine]


def test_a_name_that_two_calls_share_and_several_rows_of_one_lead_to_their_calls(server, gateway, tmp_path):
    before = len(rows(server))
    name = {"X-Request-Id": "run.7..0"}
    fields = {"max_tokens": 4, "ignore_eos": True, "program_id": "named"}
    with ThreadPoolExecutor(2) as pool:
        several = {"prompt": [[5, 6, 7], [8, 9]], "n": 2, **fields}
        one = pool.submit(post, gateway, "/v1/completions", {"prompt": [5, 6, 7], **fields}, **name)
        four = pool.submit(post, gateway, "/v1/completions", several, **name)
        assert len(json.loads(one.result())["choices"]) == 1
        assert len(json.loads(four.result())["choices"]) == 4
    mine = rows(server)[before:]
    assert len(mine) == 5
    assert {request_name(row["request_id"].partition("_")[2] or row["request_id"])[0] for row in mine} == {
        "run"
    }
    gateway.stop()
    (run,) = read_events(tmp_path / "events.jsonl")
    assert [(call.source, call.outcome) for call in run.calls] == [("log", "finished")] * 2
    assert sorted(call.output_tokens for call in run.calls) == [4, 16]
    assert sum(call.served for call in run.calls) == pytest.approx(sum(row["served"] for row in mine))


def test_what_the_engine_refuses_and_what_it_says_of_itself_comes_back(gateway):
    assert page(gateway, "/v1/models")["data"][0]["id"] == MODEL
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(gateway, "/v1/completions", {"prompt": [1] * 3000, "max_tokens": 4})
    assert refused.value.code == 400
    assert "maximum context length" in refused.value.read().decode()
    (engine,) = page(gateway, "/engines")["engines"]
    assert engine["kv_total"] == 2048  # 1024 blocks of 32 tokens


def test_a_client_that_leaves_is_aborted_in_the_engine_and_charged(server, gateway):
    before = len(rows(server))
    client = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=60)
    body = {
        "model": MODEL,
        "prompt": list(range(5, 45)),
        "max_tokens": 1200,
        "ignore_eos": True,
        "stream": True,
        "program_id": "gone",
    }
    client.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = client.getresponse()
    assert answer.status == 200, answer.read()
    answer.read(2000)
    answer.close()
    client.close()
    eventually(lambda: len(rows(server)) > before)
    eventually(lambda: program(gateway, "gone")["state"] == "idle")
    (row,) = rows(server)[before:]
    assert row["aborted"]
    assert 0 < row["output_tokens"] < 1200
    assert program(gateway, "gone")["service"] == row["served"]


def test_the_engine_forgets_programs_that_ended(server, gateway):
    for name in ("one", "two"):
        post(gateway, "/v1/completions", CALLS["/v1/completions"] | {"program_id": name})
    for name in ("one", "two"):
        post(gateway, "/programs/end", {"program_id": name})
    assert page(gateway, "/programs")["total"] == 0
    known = stats(server, gateway)["programs"]
    post(gateway, "/v1/completions", CALLS["/v1/completions"] | {"program_id": "three"})
    post(gateway, "/programs/end", {"program_id": "three"})
    assert stats(server, gateway)["programs"] == known


def stats(server, gateway):
    """The engine answers when it schedules the next call."""
    with Client(server.control, timeout=20.0) as engine, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(engine.ask, "stats")
        while not asked.done():
            post(gateway, "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 1})
        return asked.result()
