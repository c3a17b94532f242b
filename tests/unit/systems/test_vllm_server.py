"""A server process that is none: what happens when it ends, never answers, or is stopped."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from systems.engines.vllm_server import ServerOptions, VllmServer, free_port
from systems.engines.vllm_virtual import EngineUnavailable


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr("systems.engines.vllm_server.STOP_S", 0.6)


OPTIONS = ServerOptions(Path("model"), scheduler="atlas", knobs={"beta": 4})


def python(folder, script):
    """An interpreter that runs ``script`` in place of any module, and code (-c) as Python does."""
    path, real = folder / "python", sys.executable
    path.write_text(
        f"#!{real}\nimport os, sys\nargs = sys.argv[1:]\n"
        f"if args[0] == '-c': os.execv({real!r}, [{real!r}, *args])\n{script}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


HEALTHY = """
import http.server, os, subprocess, sys
port = int(args[args.index("--port") + 1])
print("child", subprocess.Popen(["sleep", "60"]).pid, flush=True)
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Ok).serve_forever()
"""


def gone(pid):
    """Whether a process is gone (a zombie nobody has waited for is)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def child_of(server):
    return int(server.output.read_text().split()[1])


def eventually(condition):
    until = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_command_line_mounts_our_scheduler():
    words = OPTIONS.command(8000, Path("c"), Path("s"))
    after = lambda flag: words[words.index(flag) + 1]  # noqa: E731
    assert after("--scheduler-cls") == "systems.vllm_host.scheduler.PolicyScheduler"
    assert after("--scheduling-policy") == "priority"
    assert "--no-async-scheduling" in words
    assert after("--num-gpu-blocks-override") == "1025"
    host = '{"scheduler": "atlas", "knobs": {"beta": 4}, "preemption": "recompute", "log": "c", "steps": "s"}'
    assert after("--additional-config") == host


def test_a_server_that_answers_and_leaves_nothing_behind(tmp_path):
    with VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY)) as server:
        server.check()
        assert server.url.startswith("http://127.0.0.1:")
        child = child_of(server)
        assert len(server.processes()) == 2
    assert gone(child)
    assert server.processes() == {}
    server.stop()
    with pytest.raises(EngineUnavailable, match="not running"):
        server.check()


def test_a_server_that_ignores_sigterm_is_killed(tmp_path):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HEALTHY
    server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, deaf))
    server.start()
    pids = [*server.processes(), child_of(server)]
    server.stop()
    assert all(map(gone, pids))


def test_an_exception_inside_stops_it(tmp_path):
    server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY))

    def interrupted():
        with server:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(child_of(server))


def test_one_that_ends_gives_its_last_words(tmp_path):
    dying = 'print("ValueError: no such model"); print("see above"); sys.exit(3)'
    with pytest.raises(EngineUnavailable, match=r"exit code 3.*its last words: ValueError: no such model"):
        VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, dying)).start()


def test_one_that_never_answers_is_given_up_and_stopped(tmp_path):
    slow = "import time; print('loading', flush=True); time.sleep(60)"
    server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, slow))
    with pytest.raises(EngineUnavailable, match=r"no answer within 0\.5 s; its last words: loading"):
        server.start(0.5)
    assert server.processes() == {}


def test_one_that_dies_later_is_noticed(tmp_path):
    with VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY)) as server:
        os.kill(min(server.processes()), 9)
        eventually(lambda: server._process.poll() is not None)
        with pytest.raises(EngineUnavailable, match="it ended"):
            server.check()
        child = child_of(server)
    assert gone(child)


def test_it_does_not_outlive_who_started_it(tmp_path):
    work, fake = str(tmp_path / "work"), str(python(tmp_path, HEALTHY))
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from pathlib import Path
from systems.engines.vllm_server import ServerOptions, VllmServer
server = VllmServer(ServerOptions(Path("m")), Path({work!r}), python=Path({fake!r}))
server.start()
print(*server.processes(), flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    leader = min(map(int, done.stdout.split()))
    eventually(lambda: gone(leader))
    for pid in map(int, done.stdout.split()):  # vLLM's children follow its front end; ours here does not care
        if not gone(pid):
            os.kill(pid, 9)


def test_no_python_and_no_port_twice(tmp_path):
    with pytest.raises(EngineUnavailable, match="cannot run"):
        VllmServer(OPTIONS, tmp_path / "work", python=tmp_path / "none").start()
    assert free_port() > 0
