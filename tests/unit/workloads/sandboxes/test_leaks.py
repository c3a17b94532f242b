import os
import socket
import subprocess
import sys

from workloads.sandboxes.leaks import leaks
from workloads.sandboxes.ledger import Entry, Ledger
from workloads.sandboxes.ports import free_ports
from workloads.sandboxes.processes import NAME, OWNER, Process, kill_marked, marked


def test_everything_that_is_left_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    boxes, owner = tmp_path / "boxes", f"leaks-{os.getpid()}"
    assert leaks(boxes, owner) == []
    (boxes / "one").mkdir(parents=True)
    Ledger().enter(Entry("one", "process", owner, str(boxes / "one"), Process.this()))
    Ledger().enter(Entry("two", "process", "other", "", Process.this()))
    environment = {**os.environ, OWNER: owner, NAME: "one"}
    words = [sys.executable, "-c", "input()"]
    with socket.socket() as server, subprocess.Popen(words, env=environment, stdin=subprocess.PIPE) as left:
        (port,) = free_ports(1, ())
        server.bind(("127.0.0.1", port))
        server.listen()
        assert leaks(boxes, owner, [port]) == [
            f"process {left.pid}: {sys.executable} -c input()", "folder one",
            f"port {port}: somebody listens", "entry one (process)",
        ]  # fmt: skip
        assert marked(NAME, "on") == []
        assert marked(OWNER, owner) == [left.pid]
        assert left.pid in marked(OWNER)
        assert kill_marked(NAME, "one") == []
        assert left.wait() == -9


def test_what_cannot_be_killed_is_said(monkeypatch):
    from workloads.sandboxes import processes

    now, killed = iter(range(100)), []
    monkeypatch.setattr(processes, "marked", lambda *_: [4_000_001])
    monkeypatch.setattr(processes.os, "kill", lambda pid, _: killed.append(pid))
    left = kill_marked(NAME, "x", 3.0, clock=lambda: float(next(now)), sleep=lambda _: None)
    assert (left, len(killed)) == ([4_000_001], 4)
