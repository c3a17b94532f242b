"""``bench up`` and ``bench down`` as processes, with servers that are none."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.cli.down import down as down_verb
from bench.cli.up import up as up_verb
from systems.engines.vllm_virtual import ROOT
from systems.provision.recipe import healthy
from tests.unit.systems.provision.fakes import CHILDLESS, DYING, SILENT, eventually, gone, python

RUN = """
import sys, typer
from bench.cli.down import down
from bench.cli.up import up
app = typer.Typer()
app.command("up")(up)
app.command("down")(down)
app()
"""
ENVIRONMENT = {**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text("{}")
    return str(tmp_path / "llama")


def verbs():
    app = typer.Typer()
    app.command("up")(up_verb)
    app.command("down")(down_verb)
    return app


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Runs a verb in this process, with its own folder of results; what is up at the end is taken down."""
    monkeypatch.setenv("DOCKER_HOST", ENVIRONMENT["DOCKER_HOST"])
    monkeypatch.delenv("BENCH_SGLANG_PYTHON", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "state"))  # no sandboxes of others

    def run(*words):
        return CliRunner().invoke(verbs(), [*words, "--out", str(tmp_path / "results")])

    yield run
    if states(tmp_path):
        run("down", "--all")


def as_a_process(tmp_path, *words):
    return subprocess.run(
        command(tmp_path, *words), capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT
    )


def command(tmp_path, *words):
    return [sys.executable, "-c", RUN, *words, "--out", str(tmp_path / "results")]


def up(tmp_path, model, script, *more):
    fake = str(python(tmp_path, script))
    return ("up", "--vllm-python", fake, "--model", model, "--device", "cpu", *more)


def state(tmp_path, name="default"):
    return json.loads((tmp_path / "results" / "up" / f"{name}.json").read_text())


def pids(tmp_path):
    return [int(one["owner"].partition(":")[0]) for one in state(tmp_path)["engines"]]


def states(tmp_path):
    return list((tmp_path / "results" / "up").glob("*.json"))


def test_up_goes_on_running_until_down(tmp_path, bench, model):
    words = up(tmp_path, model, CHILDLESS, "--replicas", "2", "--system", "atlas")
    begun = as_a_process(tmp_path, *words)
    assert begun.returncode == 0, begun.stderr
    urls = begun.stdout.split()
    assert [healthy(url) for url in urls] == [True, True]
    assert "vllm0 is up at http://127.0.0.1:" in begun.stderr
    found = state(tmp_path)
    assert found["ready"]
    assert found["about"]["facts"][1]["command"][-1].startswith('{"scheduler": "atlas"')
    again = bench(*words)
    assert again.exit_code == 2
    assert f"a fleet default is up already ({urls[0]}, {urls[1]}): `bench down default`" in again.stderr
    ours = pids(tmp_path)
    done = as_a_process(tmp_path, "down")
    assert (done.returncode, done.stdout) == (0, "default: 2 engines ended\n"), done.stderr
    assert all(map(gone, ours))
    assert states(tmp_path) == []
    assert bench("down").stdout == "nothing to end\n"
    assert bench("down", "default").exit_code == 0


def test_down_names_what_is_up_if_it_is_given_another_name(tmp_path, bench, model):
    assert bench(*up(tmp_path, model, CHILDLESS, "--name", "mine")).exit_code == 0
    done = bench("down", "nope")
    assert (done.exit_code, "no fleet nope is up; up are: mine" in done.stderr) == (2, True), done.stderr
    assert [path.stem for path in states(tmp_path)] == ["mine"]
    assert bench("down", "mine").exit_code == 0
    assert (bench("down", "mine").exit_code, bench("down", "nope").exit_code) == (0, 0)


def test_one_that_dies_at_the_start_leaves_nothing(tmp_path, bench, model):
    done = bench(*up(tmp_path, model, DYING, "--replicas", "2"))
    assert done.exit_code == 6
    assert "its last words: ValueError: no such model" in done.stderr
    assert "Traceback" not in done.stderr
    assert states(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupted_while_they_start_leaves_nothing(tmp_path, model, bench, number):
    process, ours = starting(tmp_path, model)
    process.send_signal(number)
    assert process.wait(timeout=30) == 130
    assert "interrupted; the same command starts over" in (tmp_path / "said").read_text()
    assert all(map(gone, ours))
    assert states(tmp_path) == []


def test_kill_9_while_they_start_is_cleaned_by_down(tmp_path, model, bench):
    process, ours = starting(tmp_path, model)
    during = bench(*up(tmp_path, model, CHILDLESS))
    assert (during.exit_code, "is up already" in during.stderr) == (2, True)
    process.kill()
    process.wait()
    done = bench("down")
    assert (done.exit_code, done.stdout) == (0, "default: 2 engines ended\n"), done.stderr
    assert all(map(gone, ours))


def starting(tmp_path, model):
    """A ``bench up`` of two engines that never answer, both begun; what it says is in ``said``."""
    words = command(tmp_path, *up(tmp_path, model, SILENT, "--replicas", "2"))
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said, cwd=ROOT)
    eventually(lambda: states(tmp_path) and len(state(tmp_path)["engines"]) == 2, 30.0)
    return process, pids(tmp_path)


def test_a_fleet_whose_engines_are_gone_makes_room(tmp_path, bench, model):
    words = up(tmp_path, model, CHILDLESS)
    assert bench(*words).exit_code == 0
    for pid in pids(tmp_path):
        os.killpg(pid, signal.SIGKILL)
    until = time.monotonic() + 5
    while not all(map(gone, pids(tmp_path))):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert bench(*words).exit_code == 0


def test_ports_in_a_row_and_one_that_is_taken(tmp_path, bench, model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = bench(*up(tmp_path, model, CHILDLESS, "--port", str(port)))
        assert done.exit_code == 6
        assert f"port {port} is taken by pid {os.getpid()}" in done.stderr
    assert states(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["up", "--engine", "tgi"], 2, "engine must be one of vllm, sglang, got 'tgi'"),
        (["up", "--how", "k8s"], 2, "how must be one of process, docker"),
        (["up", "--system", "none"], 2, "unknown system 'none'"),
        (["up", "--knob", "engine.max_num_seqs=few"], 2, "must be a whole number"),
        (["up", "--knob", "scheduler.nothing=1"], 2, "nothing"),
        (["up", "--name", "../x"], 2, "a fleet's name has letters"),
        (["up", "--replicas", "0"], 2, "replicas must be from 1"),
        (["up", "--port", "70000"], 2, "port must be 0 or from 1"),
        (["up", "--model", "./nothing"], 2, "is neither a folder here nor ORGANISATION/MODEL"),
        (["up", "--system", "srpt"], 6, "srpt cannot run on engine vllm"),
        (["up", "--vllm-python", "/nowhere/python"], 6, "cannot run /nowhere/python"),
        (["up", "--engine", "sglang", "--model", "a/b"], 6, "BENCH_SGLANG_PYTHON"),
        (["up", "--engine", "sglang", "--model", "a/b", "--system", "mlfq"], 2, "SGLang schedules by itself"),
        (["up", "--how", "docker"], 6, "Docker engine at unix:///nowhere/docker.sock: nobody answers"),
        (["up", "--how", "docker", "--network", "x"], 2, "network must be one of auto, bridge, host"),
        (["up", "--hf-cache", "/nowhere"], 2, "hf-cache: there is no folder /nowhere"),
        (["down", "x", "--all"], 2, "give x or --all, not both"),
        (["down", "../x"], 2, "a fleet's name has letters"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_in_a_line(tmp_path, bench, words, code, said):
    done = bench(*words)
    assert (done.exit_code, "Traceback" in done.output) == (code, False), done.output
    assert said in " ".join(done.output.split())
    assert states(tmp_path) == []


def test_results_that_cannot_be_written(tmp_path, bench, model):
    (tmp_path / "results").write_text("a file")
    done = bench(*up(tmp_path, model, CHILDLESS))
    assert (done.exit_code, "cannot write results to" in done.output) == (6, True), done.output
    (tmp_path / "results").unlink()


def test_several_fleets_need_a_name(tmp_path, bench, model):
    for name in ("a", "b"):
        assert bench(*up(tmp_path, model, CHILDLESS, "--name", name)).exit_code == 0
    done = bench("down")
    assert (done.exit_code, "which one? a, b are there" in done.stderr) == (2, True)
    assert bench("down", "--all", "--json").exit_code == 0
    assert states(tmp_path) == []
    assert Path(tmp_path / "results" / "up" / "a" / "engine0" / "server.log").is_file()


def test_down_says_which_sandboxes_a_crash_had_left(bench, monkeypatch):
    monkeypatch.setattr("workloads.sandboxes.catalog.sweep", lambda: ["sandbox p-1 (bwrap): removed"])
    assert bench("down").stdout == "sandbox p-1 (bwrap): removed\n"
