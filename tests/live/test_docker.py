"""Containers on a real Docker engine: a busybox image with a fake vLLM in it, which answers /health.

The engine is started for this file by scripts/with_dockerd.sh, which installs it where it is missing (root).
Where that cannot be, these tests fail and say why; BENCH_WITHOUT_DOCKER=1 leaves them out (conftest.py).
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import docker as sdk
import pytest

from systems.engines.vllm_server import ServerOptions
from systems.engines.vllm_virtual import ROOT, EngineUnavailable
from systems.provision import docker_engine
from systems.provision.docker import ContainerOptions, ContainerServer
from systems.provision.fleet import Fleet
from systems.provision.recipe import healthy

pytestmark = [pytest.mark.live, pytest.mark.docker]

IMAGE = "bench-test/vllm:1"
HOST = ContainerOptions(IMAGE, network="host", shm="64m")
FAKE = r"""#!/bin/sh
echo "fake vLLM: $*"
case "$*" in *--die*) echo "ValueError: no such model"; exit 3;; esac
while [ $# -gt 0 ]; do
  case "$1" in --host) host=$2;; --port) port=$2;; --model) model=$2;; esac
  shift
done
mkdir -p /www && echo ok > /www/health && echo '{"version": "0.0.1"}' > /www/version
there() { [ -e "$1" ] && echo true || echo false; }
touch /bench/code/systems/new 2>/dev/null && writable=true || writable=false
echo "{\"path\": \"$PYTHONPATH\", \"scheduler\": $(there $PYTHONPATH/systems/vllm_host/scheduler.py)," \
  "\"words\": $(there $PYTHONPATH/vocabulary.py), \"model\": $(there $model/config.json)," \
  "\"token\": \"$HF_TOKEN\", \"hub\": $(there $HF_HOME/mark), \"writable\": $writable," \
  "\"shm\": $(df -m /dev/shm | awk 'NR == 2 { print $2 }')}" > /bench/logs/calls.jsonl
busybox httpd -f -p "$host:$port" -h /www &
trap 'kill $!; exit 0' TERM
wait
"""
COMMANDS = ("sh", "mkdir", "touch", "df", "awk", "cat")
BENCH = """
import sys, typer
from bench.cli.down import down
from bench.cli.up import up
app = typer.Typer()
app.command("up")(up)
app.command("down")(down)
app()
"""


def rootfs():
    """A tar file of busybox, and of python3, which is the fake server."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add("/bin/busybox" if Path("/bin/busybox").exists() else "/usr/bin/busybox", "bin/busybox")
        for command in COMMANDS:
            link = tarfile.TarInfo(f"bin/{command}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        script = tarfile.TarInfo("bin/python3")
        script.mode, script.size = 0o755, len(FAKE)
        tar.addfile(script, io.BytesIO(FAKE.encode()))
    return data.getvalue()


@pytest.fixture(scope="module")
def client():
    """A Docker engine with the image, for this file; nothing of ours is left in it."""
    script = ROOT / "scripts" / "with_dockerd.sh"
    engine = subprocess.Popen(
        [str(script), "300", "sh", "-c", "echo $DOCKER_HOST; cat"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    where = engine.stdout.readline().strip()
    if not where:
        pytest.fail(
            f"no Docker engine here: {engine.communicate()[1]} (BENCH_WITHOUT_DOCKER=1 leaves this out)"
        )
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = where
    client = docker_engine.connect()
    client.api.import_image_from_data(rootfs(), repository=IMAGE.partition(":")[0], tag="1")
    yield client
    left = [one.name for one in client.containers.list(all=True)]
    client.close()
    engine.communicate("", timeout=60)
    os.environ.pop("DOCKER_HOST")
    if before is not None:
        os.environ["DOCKER_HOST"] = before
    assert left == []
    assert not Path(where.removeprefix("unix://")).exists()


@pytest.fixture
def options(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / "mark").touch()
    return ServerOptions(model, scheduler="atlas", hf_cache=hub)


def containers(client):
    return [one.name for one in client.containers.list(all=True)]


def test_a_server_in_a_container(client, options, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    auto = replace(HOST, network="auto")  # this engine has no bridge
    with ContainerServer(options, tmp_path / "engine", auto, client=client) as server:
        assert healthy(server.url)
        server.check()
        inside = json.loads(server.calls.read_text())
        facts = server.facts()
        (container,) = client.containers.list()
        assert container.labels[docker_engine.OWNER].startswith(f"{os.getpid()}:")
    assert inside == {
        "path": "/bench/code", "scheduler": True, "words": True, "model": True, "token": "hf_verysecret",
        "hub": True, "writable": False, "shm": 64,
    }  # fmt: skip
    assert (facts["version"], facts["image"]) == ("0.0.1", IMAGE)
    assert facts["digest"].startswith("sha256:")
    assert "systems.vllm_host.scheduler.PolicyScheduler" in facts["command"]
    assert "verysecret" not in json.dumps(facts)
    assert "fake vLLM: -m vllm.entrypoints.openai.api_server" in server.output.read_text()
    assert containers(client) == []
    server.stop()
    with pytest.raises(EngineUnavailable, match="not running"):
        server.check()


def test_one_that_ends_takes_the_others_with_it(client, options, tmp_path):
    dying = replace(options, flags=("--die",))
    fleet = Fleet(
        [
            ContainerServer(options, tmp_path / "good", HOST, client=client),
            ContainerServer(dying, tmp_path / "bad", HOST, client=client),
        ],
        lambda _: None,
    )
    with pytest.raises(EngineUnavailable, match=r"bad: .*exit code 3.*ValueError: no such model"):
        fleet.start()
    assert containers(client) == []
    assert "ValueError" in (tmp_path / "bad" / "server.log").read_text()


def test_one_that_ends_later_is_noticed(client, options, tmp_path):
    with ContainerServer(options, tmp_path / "engine", HOST, client=client) as server:
        client.containers.list()[0].kill()
        with pytest.raises(EngineUnavailable, match="exit code 137"):
            server.check()


@pytest.mark.parametrize(
    ("container", "said"),
    [
        (ContainerOptions("bench-test/none:1", network="host"), r"image .*none:1 is not here: `docker pull"),
        (replace(HOST, gpus="all"), r"no GPU to give .*nvidia-container-toolkit"),
        (ContainerOptions(IMAGE, network="bridge", shm="64m"), r"network host"),
    ],
    ids=["image", "gpu", "no bridge"],
)
def test_a_refusal_says_what_to_do_and_leaves_nothing(client, options, tmp_path, container, said):
    with pytest.raises(EngineUnavailable, match=said):
        ContainerServer(options, tmp_path / "engine", container, client=client).begin()
    assert containers(client) == []


def test_a_name_that_is_taken(client, options, tmp_path):
    with ContainerServer(options, tmp_path / "engine", HOST, client=client):
        other = ContainerServer(options, tmp_path / "other", HOST, name="engine", client=client)
        with pytest.raises(EngineUnavailable, match=r"container of that name is there already"):
            other.begin()
        assert len(containers(client)) == 1


def test_kill_9_leaves_a_container_that_down_removes(client, options, tmp_path):
    script = f"""
import os
from pathlib import Path
from systems.engines.vllm_server import ServerOptions
from systems.provision.docker import ContainerOptions, ContainerServer
folder = Path({str(tmp_path)!r})
server = ContainerServer(
    ServerOptions(folder / "model"), folder / "orphan", ContainerOptions({IMAGE!r}, network="host", shm="64m")
)
server.begin()
server.ready()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert len(containers(client)) == 1
    with ContainerServer(options, tmp_path / "mine", HOST, client=client) as mine:
        done = bench("down", "--out", str(tmp_path / "results"))
        assert (done.returncode, done.stdout.count("-orphan")) == (0, 1), done.stderr
        mine.check()  # of a process that lives
    assert containers(client) == []


def bench(*words, **kwargs):
    command = [sys.executable, "-c", BENCH, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **kwargs)


def up(image, options):
    small = ("--network", "host", "--shm", "64m", "--device", "cpu")
    return ("up", "--how", "docker", "--image", image, "--model", str(options.model), *small)


def test_up_and_down(client, options, tmp_path):
    out = ("--out", str(tmp_path / "results"))
    words = (*up(IMAGE, options), "--replicas", "2", "--system", "mlfq", "--name", "two", *out)
    begun = time.monotonic()
    done = bench(*words)
    assert done.returncode == 0, done.stderr
    urls = done.stdout.split()
    assert [healthy(url) for url in urls] == [True, True], f"after {time.monotonic() - begun:.1f} s"
    again = bench(*words)
    assert (again.returncode, "two is up already" in again.stderr) == (2, True), again.stderr
    state = json.loads((tmp_path / "results" / "up" / "two.json").read_text())
    assert [one["container"] for one in state["engines"]] == [
        one.id for one in sorted(client.containers.list(all=True), key=lambda one: one.name)
    ]
    client.containers.get(state["engines"][0]["container"]).remove(force=True)  # by hand; one is left
    ended = bench("down", "two", *out)
    assert (ended.returncode, ended.stdout) == (0, "two: 1 engine ended\n"), ended.stderr
    assert containers(client) == []
    assert "fake vLLM" in (tmp_path / "results" / "up" / "two" / "engine1" / "server.log").read_text()
    assert bench("down", "two", *out).stdout == "nothing to end\n"


def test_interrupted_while_it_starts(client, options, tmp_path):
    """Ctrl-C before all are up: no container, no state."""
    client.api.import_image_from_data(rootfs_that_sleeps(), repository="bench-test/never", tag="1")
    words = (*up("bench-test/never:1", options), "--out", str(tmp_path / "results"))
    process = subprocess.Popen(
        [sys.executable, "-c", BENCH, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 30
    while not containers(client):
        assert time.monotonic() < until
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(2)
    assert process.wait(timeout=40) == 130
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert containers(client) == []
    assert list((tmp_path / "results" / "up").glob("*.json")) == []


def rootfs_that_sleeps():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add("/bin/busybox" if Path("/bin/busybox").exists() else "/usr/bin/busybox", "bin/busybox")
        script = b"#!/bin/busybox sh\ntrap 'exit 0' TERM\nbusybox sleep 60 &\nwait\n"
        file = tarfile.TarInfo("bin/python3")
        file.mode, file.size = 0o755, len(script)
        tar.addfile(file, io.BytesIO(script))
    return data.getvalue()


def test_who_has_no_engine_is_told_what_to_do(monkeypatch, client, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineUnavailable, match=r"none\.sock: nobody answers: start it"):
        docker_engine.connect()
    assert isinstance(client, sdk.DockerClient)
