"""A server process that is none: what happens when it ends, never answers, or is stopped."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from systems.engines.vllm_server import TOLD, ServerOptions, VllmServer, free_port
from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.recipe import Place
from systems.provision.vllm_flags import Installed, installed
from tests.unit.systems.provision.fakes import DYING, HEALTHY, SILENT, eventually, gone, python


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr("systems.provision.process.STOP_S", 0.6)
    monkeypatch.setattr("systems.provision.process.GRACE_S", 2.0)


OPTIONS = ServerOptions(Path("model"), scheduler="atlas", knobs={"beta": 4})


def child_of(server):
    return int(server.output.read_text().split()[1])


def test_the_command_line_mounts_our_scheduler():
    words = OPTIONS.command(Place(8000, Path("logs"), "model"))
    after = lambda flag: words[words.index(flag) + 1]  # noqa: E731
    assert after("--scheduler-cls") == "systems.vllm_host.scheduler.PolicyScheduler"
    assert after("--scheduling-policy") == "priority"
    assert "--no-async-scheduling" in words
    assert after("--num-gpu-blocks-override") == "1025"
    assert json.loads(after("--additional-config")) == {
        "scheduler": "atlas", "knobs": {"beta": 4}, "preemption": "recompute", "engine": 0,
        "log": "logs/calls.jsonl", "steps": "logs/steps.jsonl",
    }  # fmt: skip


def test_a_gpu_is_left_to_vllm():
    """No limit of ours that was not asked for, CUDA graphs, and scheduling one step ahead."""
    options = ServerOptions.on_gpu(
        "org/model", "m", scheduler="mlfq", tensor_parallel=2, engine=3, control=True
    )
    words = options.command(Place(8000, Path("logs"), "org/model", control="c.sock"))
    after = lambda flag: words[words.index(flag) + 1]  # noqa: E731
    left_out = {"--enforce-eager", "--dtype", "--block-size", "--num-gpu-blocks-override", "--max-num-seqs",
                "--kv-cache-memory-bytes", "--max-model-len", "--no-async-scheduling"}  # fmt: skip
    assert left_out.isdisjoint(words)
    assert after("--scheduler-cls").endswith(".PolicyAsyncScheduler")
    assert (after("--tensor-parallel-size"), after("--model")) == ("2", "org/model")
    host = json.loads(after("--additional-config"))
    assert (host["engine"], host["control"]) == (3, "c.sock")
    environment = replace(options, hf_cache=Path("hub")).environment()
    assert environment["HF_HOME"] == str(Path("hub").resolve())
    assert "HF_HUB_OFFLINE" not in environment
    assert "OMP_NUM_THREADS" not in environment
    assert OPTIONS.environment()["HF_HUB_OFFLINE"] == "1"
    assert OPTIONS.environment()["VLLM_SERVER_DEV_MODE"] == "1"


def test_vllm_alone_has_no_logs_of_ours(tmp_path):
    stock = replace(OPTIONS, scheduler="", prefix_cache=False)
    words = stock.command(Place(8000, Path("logs"), "model"))
    assert {"--scheduler-cls", "--additional-config", "--scheduling-policy"}.isdisjoint(words)
    assert "--no-enable-prefix-caching" in words
    server = VllmServer(stock, tmp_path)
    assert (server.calls, server.steps, server.control) == (None, None, None)


def test_what_a_version_can_tell_is_read_from_its_files(tmp_path):
    package = tmp_path / "vllm"
    (package / "entrypoints" / "launchers").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('nobody imports it')")
    (package / "_version.py").write_text("__version__ = version = '0.99.1'\n")
    (package / "entrypoints" / "launchers" / "cli_args.py").write_text(
        "enable_request_id_headers: bool = 0\n"
    )
    real = tmp_path / "python"
    real.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    real.chmod(0o755)
    assert installed(real, TOLD) == Installed("0.99.1", ("--enable-request-id-headers",))
    assert installed(Path(sys.executable), TOLD) == Installed()
    assert installed(tmp_path / "none", TOLD) == Installed()


def test_facts_hide_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    options = replace(OPTIONS, flags=("--api-key", "mine", "--x-token=yours", "--note", "of hf_verysecret"))
    with VllmServer(options, tmp_path / "work", python=python(tmp_path, HEALTHY), name="e0") as server:
        facts = server.facts()
    assert facts["kind"] == "vllm"
    assert facts["command"][-5:] == ["--api-key", "***", "--x-token=***", "--note", "of ***"]
    assert "verysecret" not in str(facts)


def test_a_port_that_is_taken_is_said_with_who_has_it(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY), port=port)
        with pytest.raises(EngineUnavailable, match=rf"port {port} is taken by pid {os.getpid()} \("):
            server.begin()
    with server:
        assert server.url == f"http://127.0.0.1:{port}"


def test_paths_may_be_relative(tmp_path, monkeypatch):
    """It runs in its own folder: what was named from ours must still be found."""
    monkeypatch.chdir(tmp_path)
    python(tmp_path, HEALTHY)
    with VllmServer(OPTIONS, Path("work"), python=Path("python")) as server:
        words = server.facts()["command"]
        assert words[words.index("--model") + 1] == str(tmp_path / "model")


def test_one_that_outlives_its_starter_is_found_by_its_pid(tmp_path):
    server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY), outlives=True)
    with server:
        assert Path(f"/proc/{server.pid}/cwd").resolve() == (tmp_path / "work").resolve()
    assert server.pid is None


def test_a_socket_goes_elsewhere_if_its_folder_has_a_long_name(tmp_path):
    options = replace(OPTIONS, control=True)
    short = VllmServer(options, tmp_path / "w", python=python(tmp_path, HEALTHY))
    long = VllmServer(options, tmp_path / ("w" * 110), python=python(tmp_path, HEALTHY))
    with short, long:
        assert short.control == str(tmp_path / "w" / "control.sock")
        assert len(long.control) < 100
        there = Path(long.control).parent
        assert there.is_dir()
    assert not there.exists()


def test_a_server_that_answers_and_leaves_nothing_behind(tmp_path):
    with VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY)) as server:
        server.check()
        assert server.url.startswith("http://127.0.0.1:")
        child = child_of(server)
        assert len(server.processes()) == 3  # the guard, the server, its child
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


def test_one_may_be_asked_to_end_first(tmp_path):
    server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY))
    server.ask()
    with server:
        pid = server.pid
        server.ask()
        server.ask()
        eventually(lambda: gone(pid))
    assert gone(child_of(server))


def test_an_exception_inside_stops_it(tmp_path):
    server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, HEALTHY))

    def interrupted():
        with server:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(child_of(server))


def test_one_that_ends_gives_its_last_words(tmp_path):
    with pytest.raises(EngineUnavailable, match=r"exit code 3.*its last words: ValueError: no such model"):
        VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, DYING)).start()


def test_one_that_never_answers_is_given_up_and_stopped(tmp_path):
    server = VllmServer(OPTIONS, tmp_path / "work", python=python(tmp_path, SILENT))
    server.begin()
    eventually(lambda: "loading" in server.output.read_text())
    with pytest.raises(EngineUnavailable, match=r"no answer within 0\.1 s; its last words: loading"):
        server.ready(0.1)
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
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    eventually(lambda: all(map(gone, pids)))  # the child, too, which does not care who started it


def test_no_python_and_no_port_twice(tmp_path):
    with pytest.raises(EngineUnavailable, match="cannot run"):
        VllmServer(OPTIONS, tmp_path / "work", python=tmp_path / "none").start()
    assert free_port() > 0
