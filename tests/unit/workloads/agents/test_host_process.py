"""The client of an agent host: it hears all, stops it in time, and clears up after one that died."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.workloads.agents import host_parts
from tests.unit.workloads.agents.host_parts import AGENT, NEEDY, there
from tests.unit.workloads.agents.test_host import ends, job
from workloads.agents.host_process import PYTHON, ROOT, HostGone, HostProcess, find_python


def process(tmp_path, asked, **options):
    return HostProcess(asked, tmp_path / "logs" / "host.log", search_path=[str(ROOT)], **options)


async def heard(host, until=lambda event: False):
    events = []
    async for event in host.events():
        events.append(event)
        if until(event):
            break
    return events


def in_time(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_all_is_heard(tmp_path):
    async def drive():
        async with process(tmp_path, job(tmp_path, how="printing", n=4)) as host:
            assert host.pid
            return await heard(host), host

    events, host = in_time(drive())
    assert ends(events) == dict.fromkeys(range(4), ("finished", True))
    assert host.pid == 0
    assert host.leaks == []
    assert "not an event" in host.log.read_text()


def test_stopped_it_tears_down_though_nobody_listens(tmp_path):
    asked = job(tmp_path, how="hanging", suite="SUMS_IN_SANDBOX")

    async def drive():
        async with process(tmp_path, asked) as host:
            await heard(host, lambda event: event.get("what") == "teardown")
            pid = host.pid
        await host.stop()
        return pid, host.leaks

    begin = time.monotonic()
    pid, leaks = in_time(drive())
    assert time.monotonic() - begin < 15
    assert leaks == []
    assert there(asked.folder) == []
    assert not Path(f"/proc/{pid}").exists()


def test_of_one_that_was_killed_sandboxes_are_swept(tmp_path, monkeypatch):
    asked = job(tmp_path, how="hanging", suite="SUMS_IN_SANDBOX", owner="killed")
    swept = []
    monkeypatch.setattr(host_parts.FakeKind, "sweep", lambda self, owner=None: swept.append(owner) or [])

    async def drive():
        async with process(tmp_path, asked) as host:
            await heard(host, lambda event: event.get("what") == "teardown")
            os.kill(host.pid, signal.SIGKILL)
            with pytest.raises(HostGone, match=r"ended \(exit code -9\); it said nothing"):
                await heard(host)

    in_time(drive())
    assert swept == ["killed"]


def test_one_that_hangs_is_killed(tmp_path):
    """Its loop is blocked: it cannot heed the end of its input."""

    async def drive():
        async with process(tmp_path, job(tmp_path, how="blocking_the_loop", n=1)) as host:
            await heard(host, lambda event: event["event"] == "began")
            pid = host.pid
            await host.stop(limit_s=0.3)
            return pid

    pid = in_time(drive())
    assert not Path(f"/proc/{pid}").exists()


def test_what_it_cannot_do_is_said(tmp_path):
    async def drive():
        async with process(tmp_path, job(tmp_path, suite="NO_SUMS")) as host:
            await heard(host)

    with pytest.raises(HostGone, match="the well"):
        in_time(drive())


def test_no_python(tmp_path):
    async def drive():
        async with process(tmp_path, job(tmp_path), python=str(tmp_path / "python")):
            raise AssertionError("it started")

    with pytest.raises(HostGone, match="cannot start"):
        in_time(drive())


def test_another_python_without_our_packages_says_what_it_lacks(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)

    async def drive():
        async with process(tmp_path, job(tmp_path), python=str(python)) as host:
            await heard(host)

    with pytest.raises(HostGone, match="No module named"):
        in_time(drive())


def test_which_python(tmp_path, monkeypatch):
    monkeypatch.delenv(PYTHON, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workloads.agents.host_process.ROOT", tmp_path)
    assert find_python(AGENT) == sys.executable
    with pytest.raises(HostGone, match=r"fake needs no_such_module: build .*make_agents\.sh"):
        find_python(NEEDY)
    there = tmp_path / ".venv-agents" / "bin" / "python"
    there.parent.mkdir(parents=True)
    there.symlink_to(sys.executable)
    assert find_python(NEEDY) == str(there)
    monkeypatch.setenv(PYTHON, "/nowhere/python")
    with pytest.raises(HostGone, match="which is no program"):
        find_python(NEEDY)


LATE = """
import sys
from workloads.agents import host
host.GRACE_S = 0.3
sys.exit(host.main())
"""


@pytest.mark.parametrize("how", ["eof", signal.SIGTERM])
def test_a_host_that_is_blocked_leaves_all_the_same(tmp_path, how):
    with subprocess.Popen(
        [sys.executable, "-c", LATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as blocked:
        try:
            blocked.stdin.write(job(tmp_path, how="blocking_the_loop", n=1).line() + "\n")
            blocked.stdin.flush()
            while "began" not in blocked.stdout.readline():
                pass
            blocked.stdin.close() if how == "eof" else blocked.send_signal(how)
            assert "did not end within 0.3 s" in blocked.stdout.readline()
            assert blocked.wait(10) == 1
        finally:
            blocked.kill()
