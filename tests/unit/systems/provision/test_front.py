"""A third-party router's process, with a script in its place: start, readiness, end, what is said."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from systems.engines.vllm_virtual import EngineUnavailable
from systems.fronts.vllm_router import VllmRouter
from systems.provision.front import FrontProcess
from tests.unit.systems.provision.fakes import DYING, SILENT, eventually, gone, python

ENGINES = ["http://127.0.0.1:8001", "http://127.0.0.1:8002"]
ROUTER = """
import ctypes, http.server, json, subprocess, sys
ctypes.CDLL(None).prctl(15, b"vllm::router")  # routers rename themselves
port = int(args[args.index("--port") + 1])
print("child", subprocess.Popen(["sleep", "60"]).pid, flush=True)
asked = []
class Router(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/readiness":
            asked.append(1)
        ready = {"healthy_workers": FOUND if len(asked) > 2 else 0}
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps(ready).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Router).serve_forever()
"""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr("systems.provision.process.STOP_S", 0.6)


def process(tmp_path, script=ROUTER, found=2):
    fake = python(tmp_path, script.replace("FOUND", str(found)))
    return FrontProcess(VllmRouter(), ENGINES, tmp_path / "front", fake)


def child_of(front):
    return int(front.output.read_text().split()[1])


def test_it_is_ready_when_it_has_found_every_engine_and_leaves_nothing_behind(tmp_path):
    with process(tmp_path) as front:
        front.check()
        assert front.healthy() == 2
        assert front.url.startswith("http://127.0.0.1:")
        child = child_of(front)
        assert len(front.processes()) == 3  # its guard, too
        assert (front.calls, front.steps, front.control, front.name) == (None, None, None, "vllm-router")
    assert gone(child)
    assert front.processes() == {}
    front.stop()
    with pytest.raises(EngineUnavailable, match="front vllm-router: it is not running"):
        front.check()


def test_an_engine_that_it_does_not_find_is_an_error_and_stops_it(tmp_path):
    front = process(tmp_path, found=1)
    front.begin()
    with pytest.raises(EngineUnavailable, match=r"finds 1 of 2 engines healthy after 0\.9 s; its last words"):
        front.ready(0.9)
    assert front.processes() == {}
    assert gone(child_of(front))


@pytest.mark.parametrize(
    ("script", "limit", "message"),
    [
        (DYING, 30.0, "front vllm-router: it ended .exit code 3.*no such model"),
        (SILENT, 0.5, "no answer within 0.5 s"),
    ],
)
def test_one_that_ends_or_never_answers_says_its_last_words(tmp_path, script, limit, message):
    front = process(tmp_path, script)
    front.begin()
    with pytest.raises(EngineUnavailable, match=message):
        front.ready(limit)
    assert front.processes() == {}


def test_what_it_was_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    told = "import json; print(json.dumps([args, dict(os.environ)]), flush=True)\n" + ROUTER
    script = told.replace('print("child"', 'print("\\nchild"')
    with process(tmp_path, script) as front:
        line = front.output.read_text().splitlines()[0]
        facts = front.facts()
    words, environment = json.loads(line)
    ports = [int(words[words.index(flag) + 1]) for flag in ("--port", "--prometheus-port")]
    assert front.url.endswith(f":{ports[0]}")
    assert len(set(ports)) == 2
    assert environment["NO_PROXY"] == environment["no_proxy"] == "127.0.0.1"
    assert environment["PYTHONPATH"] == ""
    assert (facts["kind"], facts["package"]) == ("vllm-router", "vllm-router==0.1.17")
    assert facts["engines"] == ENGINES
    assert facts["command"][1:] == words


def test_it_does_not_outlive_who_started_it(tmp_path):
    fake = python(tmp_path, ROUTER.replace("FOUND", "2"))
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[4])!r})
from pathlib import Path
from systems.fronts.vllm_router import VllmRouter
from systems.provision.front import FrontProcess
front = FrontProcess(VllmRouter(), {ENGINES!r}, Path({str(tmp_path / "front")!r}), Path({str(fake)!r}))
front.start()
print(*front.processes(), flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pids = [int(pid) for pid in done.stdout.split()]
    eventually(lambda: gone(min(pids)))
    for pid in pids:  # a router has no children; the one here does not care
        if not gone(pid):
            os.kill(pid, 9)


def test_without_its_environment_it_says_how_to_build_it(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_ROUTERS", str(tmp_path / "none"))
    front = FrontProcess(VllmRouter(), ENGINES, tmp_path / "front")
    with pytest.raises(EngineUnavailable, match=r"run `python -m systems\.provision\.venvs vllm-router`"):
        front.begin()
    with pytest.raises(ValueError, match="needs the URL of at least one engine"):
        FrontProcess(VllmRouter(), [], tmp_path)
