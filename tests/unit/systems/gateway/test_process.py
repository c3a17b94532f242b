"""A gateway as a process: its life and its end, and what others can see of its keys."""

import json
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from systems.engines.vllm_virtual import ROOT, EngineUnavailable
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.process import GatewayProcess

NOBODY = Target("http://127.0.0.1:9", key="engine-secret")
STARTS = """
import sys, time
from pathlib import Path
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.process import GatewayProcess
one = GatewayProcess(GatewayOptions((Target("http://127.0.0.1:9"),)), Path(sys.argv[1]))
one.begin()
one.ready()
print(one.pid, flush=True)
time.sleep(60)
"""


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_it_answers_hides_its_keys_and_leaves_nothing(tmp_path):
    log = tmp_path / "events.jsonl"
    options = GatewayOptions((NOBODY,), api_keys=("client-secret",), log=str(log))
    told = tmp_path / "gateway" / "options.json"
    gateway = GatewayProcess(options, tmp_path / "gateway")
    try:
        gateway.begin()
        assert stat.S_IMODE(told.stat().st_mode) == 0o600
        gateway.ready()
        assert not told.exists()
        request = urllib.request.Request(f"{gateway.url}/programs", headers={"x-api-key": "client-secret"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert json.load(answer)["total"] == 0
        gateway.check()
        command = (
            Path(f"/proc/{gateway.pid}/cmdline").read_bytes()
            + Path(f"/proc/{gateway.pid}/environ").read_bytes()
        )
        assert b"secret" not in command
        assert "secret" not in json.dumps(gateway.facts())
        pid, port = gateway.pid, int(gateway.url.rpartition(":")[2])
        assert pid in gateway.processes()
    finally:
        gateway.stop()
    assert gone(pid)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert log.read_text().startswith('{"event":"log"')
    with pytest.raises(EngineUnavailable, match="it is not running"):
        gateway.check()
    gateway.stop()


def test_it_dies_with_the_process_that_started_it(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", STARTS, tmp_path], stdout=subprocess.PIPE, cwd=ROOT)
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(pid)


def test_a_port_that_is_taken_and_a_system_that_is_none_are_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            EngineUnavailable, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"
        ):
            GatewayProcess(GatewayOptions((NOBODY,), port=port), tmp_path).begin()
    gateway = GatewayProcess(GatewayOptions((NOBODY,), system="nope"), tmp_path)
    gateway.begin()
    with pytest.raises(
        EngineUnavailable, match=r"ended \(exit code 2\); its last words: .*unknown system 'nope'"
    ):
        gateway.ready()
    assert gateway.pid == 0
    assert not (tmp_path / "options.json").exists()
