"""Sandboxes on a real Docker engine: what every kind has to do, and what only containers can do wrong.

The engine is started for this file by scripts/with_dockerd.sh, which installs it where it is missing (root).
Where that cannot be, these tests fail and say why; BENCH_WITHOUT_DOCKER=1 leaves them out (conftest.py).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from tests.sandbox_behaviours import BEHAVIOURS, ROOT, check
from workloads.sandboxes import docker_engine
from workloads.sandboxes.catalog import sandbox_kind, sweep
from workloads.sandboxes.contract import SandboxError, SandboxOptions
from workloads.sandboxes.leaks import leaks

pytestmark = [pytest.mark.live, pytest.mark.docker]


@pytest.fixture(scope="module", autouse=True)
def client():
    """A Docker engine for this file; nothing of ours is left in it."""
    script = ROOT / "scripts" / "with_dockerd.sh"
    engine = subprocess.Popen(
        [str(script), "400", "sh", "-c", "echo $DOCKER_HOST; cat"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    where = engine.stdout.readline().strip()
    if not where:
        pytest.fail(
            f"no Docker engine here: {engine.communicate()[1]} (BENCH_WITHOUT_DOCKER=1 leaves this out)"
        )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DOCKER_HOST", where)
        client = docker_engine.connect()
        yield client
        left = [one.name for one in client.containers.list(all=True)]
        client.close()
    engine.communicate("", timeout=60)
    assert left == []
    assert not Path(where.removeprefix("unix://")).exists()


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_docker_is_a_sandbox(behaviour, tmp_path, monkeypatch):
    assert sandbox_kind("docker").missing() == ""
    check(behaviour, "docker", tmp_path, monkeypatch)


def run(folder, work, **options):
    """``work`` in a container; what it said of itself."""
    events = []
    folder.mkdir(exist_ok=True)

    async def go():
        said = SandboxOptions(f"d{os.getpid()}", folder / "box", owner="mine", **options)
        box = sandbox_kind("docker").make(said, events.append)
        await box.init()
        try:
            return await work(box)
        finally:
            await box.teardown()

    found = asyncio.run(go())
    assert leaks(folder, "mine") == []
    return found, events


def test_the_disk_is_its_layer_and_its_workspace(tmp_path):
    async def work(box):
        before = await box.disk()
        await box.exec("head -c 3000000 /dev/zero > /tmp/layer; head -c 2000000 /dev/zero > workspace")
        return before, await box.disk()

    (before, after), events = run(tmp_path / "boxes", work)
    assert before < 100_000
    assert 5_000_000 <= after < 5_200_000
    assert events[-1].disk == after


def test_it_is_isolated(tmp_path):
    async def work(box):
        return await box.exec(
            "ls /proc/[0-9]*/cmdline | wc -l; cat /sys/class/net/*/address | wc -l; touch /usr/x 2>&1; id -u;"
            "grep CapEff /proc/self/status; cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
            " /sys/fs/cgroup/memory.max 2>/dev/null"
        )

    done, _ = run(tmp_path / "boxes", work, memory_mb=64)
    processes, networks, touched, user, caps, memory = done.output.splitlines()[:6]
    assert int(processes) < 10
    assert (networks, user, caps.split()[1], memory) == ("1", str(os.getuid()), "0" * 16, str(64 << 20))
    assert "Read-only file system" in touched


def test_an_image_with_a_shell_only(tmp_path):
    async def work(box):
        hung = await box.exec("setsid sleep 700 & sleep 701", timeout_s=0.5)
        await box.write("a", "b")
        return hung, await box.read("a"), await box.exec("ps; command -v python3")

    (hung, text, done), events = run(tmp_path / "boxes", work, image="bench-sandbox:busybox", files={"c": ""})
    assert (hung.timed_out, hung.code, text, done.code) == (True, -9, "b", 127)
    assert "sleep 70" not in done.output
    assert hung.seconds < 10
    assert [event.what for event in events if event.what in ("kill", "leak")] == ["kill"]


def test_an_image_that_is_not_there(tmp_path):
    for image in ("bench-test/none:1", "bench-sandbox:none"):
        with pytest.raises(SandboxError, match=f"image {image} is not here: `docker pull {image}`"):
            run(tmp_path / "boxes", None, image=image)
    assert leaks(tmp_path / "boxes", "mine") == []


def test_a_container_of_another_state_folder_is_swept(client, tmp_path, monkeypatch):
    image = docker_engine.image_of(client, "bench-sandbox:busybox")
    labels = {docker_engine.PROCESS: "1:1:of-another-boot:1", docker_engine.OWNER: "old"}
    client.containers.create(image, ["true"], name="bench-sandbox-old", labels=labels)
    living = {docker_engine.PROCESS: docker_engine.text_of(docker_engine.Process.this())}
    other = client.containers.create(image, ["true"], name="bench-sandbox-living", labels=living)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert leaks(tmp_path / "none", "old") == ["container bench-sandbox-old"]
    assert sweep() == ["container bench-sandbox-old: removed"]
    assert [one.name for one in client.containers.list(all=True)] == ["bench-sandbox-living"]
    other.remove()


def test_who_has_no_engine_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert "none.sock: nobody answers: start it" in sandbox_kind("docker").missing()
