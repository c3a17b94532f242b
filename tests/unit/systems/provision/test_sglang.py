"""SGLang's command line, what it says of itself, its metrics; fixtures/README.md says whence."""

import json
import os
from pathlib import Path

import pytest

from systems.engines.vllm_virtual import EngineUnavailable
from systems.gateway.load import load_of
from systems.gateway.workers import Load
from systems.provision.fleet import Fleet
from systems.provision.recipe import Place
from systems.provision.sglang import (
    PYTHON,
    SglangOptions,
    SglangServer,
    server_info,
    told_of,
)
from tests.unit.systems.provision.fakes import SILENT, answering, gone, python

FIXTURES = Path(__file__).parent / "fixtures"
OLD = (FIXTURES / "sglang_metrics_old.txt").read_text()
NEW = (FIXTURES / "sglang_metrics_new.txt").read_text()
INFO = json.loads((FIXTURES / "sglang_server_info.json").read_text())
OPTIONS = SglangOptions("org/model", "m", max_total_tokens=20_000, tensor_parallel=2)
FAKE = f"""
import http.server, os
port = int(args[args.index("--port") + 1])
print("started with", *args, flush=True)
ANSWERS = {{"/health": "", "/get_server_info": {json.dumps(INFO)!r}, "/metrics": {OLD!r}}}
class Sglang(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = ANSWERS.get(self.path)
        self.send_response(404 if answer is None else 200); self.end_headers()
        self.wfile.write((answer or "").encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Sglang).serve_forever()
"""


def test_the_command_line():
    words = OPTIONS.command(Place(30000, Path("logs"), "org/model"))
    after = lambda flag: words[words.index(flag) + 1]  # noqa: E731
    assert words[:2] == ["-m", "sglang.launch_server"]
    assert (after("--schedule-policy"), after("--model-path"), after("--port")) == (
        "fcfs",
        "org/model",
        "30000",
    )
    assert {"--enable-cache-report", "--enable-metrics"} <= set(words)
    assert (after("--max-total-tokens"), after("--tensor-parallel-size")) == ("20000", "2")
    assert "--context-length" not in words
    with pytest.raises(ValueError, match="schedule_policy must be one of fcfs, lpm"):
        SglangOptions("m", schedule_policy="mlfq")


def test_a_server_its_facts_and_its_metrics(tmp_path):
    server = SglangServer(OPTIONS, tmp_path / "work", python=python(tmp_path, FAKE), name="s0")
    with Fleet([server], lambda _: None):
        assert (server.calls, server.steps, server.control) == (None, None, None)
        facts = server.facts()
        pids = list(server.processes())
        assert "started with -m sglang.launch_server" in server.output.read_text()
    assert (facts["kind"], facts["version"], facts["max_running_requests"]) == ("sglang", "0.5.4", 256)
    assert facts["max_total_num_tokens"] == 20_000
    assert pids
    assert all(map(gone, pids))


def test_a_port_that_another_process_took_meanwhile_is_not_this_servers(tmp_path, monkeypatch):
    with answering({"/health": "", "/get_server_info": INFO}) as url:
        port = int(url.rpartition(":")[2])
        monkeypatch.setattr("systems.provision.process.free_port", lambda: port)
        server = SglangServer(OPTIONS, tmp_path / "work", python=python(tmp_path, SILENT))
        with pytest.raises(EngineUnavailable, match=f"port {port} was taken by pid {os.getpid()} "):
            server.start()
        assert server.processes() == {}


def test_without_its_python_it_says_what_to_name(tmp_path, monkeypatch):
    monkeypatch.delenv(PYTHON, raising=False)
    with pytest.raises(EngineUnavailable, match=f"name the Python that has it in {PYTHON}"):
        SglangServer(OPTIONS, tmp_path).begin()
    monkeypatch.setenv(PYTHON, str(tmp_path / "none"))
    with pytest.raises(EngineUnavailable, match="there is no "):
        SglangServer(OPTIONS, tmp_path).begin()


def test_what_it_says_of_itself_under_either_name():
    for path in ("/server_info", "/get_server_info"):
        with answering({path: INFO}) as url:
            assert server_info(url) == INFO
    assert told_of(INFO)["max_running_requests"] == 256
    assert told_of({})["version"] is None
    with (
        answering({"/server_info": []}) as url,
        pytest.raises(EngineUnavailable, match="get_server_info answers 404"),
    ):
        server_info(url)


def test_metrics_as_the_gateway_reads_them():
    """A total per priority stands beside the total: it is not counted twice. Ranks are added up."""
    assert load_of(OLD.encode()) == Load(12, 3, 0.25, 0)
    assert load_of(NEW.encode()) == Load(6, 5, pytest.approx(0.2), 1250)
