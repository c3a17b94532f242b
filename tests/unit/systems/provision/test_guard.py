"""The guard of a server hands on what it is told, kills what does not heed, exits as its command did."""

import os
import signal
import subprocess
import sys
import time

import pytest

from systems.provision import guard as guards
from systems.provision.process import GUARD, group
from tests.unit.systems.provision.fakes import eventually, gone

DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(0, flush=True)
time.sleep(60)
"""


def guarded(script, grace=5.0, parent=None):
    words = ["-I", "-S", str(GUARD), str(parent or os.getpid()), str(grace), sys.executable, "-c", script]
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(guard):
    """(exit code, what it said on stderr); nothing of its group is left."""
    said = guard.communicate(timeout=20)[1]
    assert dict(group(guard.pid)) == {}
    return guard.returncode, said


@pytest.mark.parametrize(
    ("script", "code"),
    [("raise SystemExit(3)", 3), ("pass", 0), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_it_exits_as_its_command_did(script, code):
    assert end(guarded(script))[0] == code


def test_a_signal_is_handed_on():
    guard = guarded(POLITE)
    guard.stdout.readline()
    guard.terminate()
    assert end(guard)[0] == 7


def test_what_does_not_heed_is_killed_with_its_children():
    guard = guarded(DEAF, grace=0.3)
    child = int(guard.stdout.readline())
    begun = time.monotonic()
    guard.terminate()
    code, _ = end(guard)
    assert (code, gone(child)) == (137, True)
    assert time.monotonic() - begun > 0.3


def test_a_command_does_not_outlive_its_guard():
    """Killed itself, it can do nothing more; Linux kills the command."""
    guard = guarded(POLITE)
    guard.stdout.readline()
    (command,) = [pid for pid in dict(group(guard.pid)) if pid != guard.pid]
    guard.kill()
    guard.wait()
    eventually(lambda: gone(command))
    guard.stdout.close()
    guard.stderr.close()


def test_who_dies_before_it_began_is_noticed():
    code, said = end(guarded("pass", parent=1 if os.getppid() != 1 else 2))
    assert (code, said.strip()) == (1, "the process that started the server is gone")


def test_a_command_that_is_none():
    words = ["-I", "-S", str(GUARD), str(os.getpid()), "1", "/nowhere/command"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot run /nowhere/command" in done.stderr) == (1, True)


def test_what_cannot_be_killed_is_left_and_said(monkeypatch, capsys):
    def forbidden(pid, number):
        raise PermissionError(pid, number)

    monkeypatch.setattr(guards, "_others", lambda: iter([4_000_000]))
    monkeypatch.setattr(guards.os, "kill", forbidden)
    guards._end_rest(0.0, 0.1)
    assert "still there after SIGKILL: [4000000]" in capsys.readouterr().err


def test_a_blocked_signal_is_not_inherited():
    """It waits for signals with them blocked; its command must not."""
    script = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)"
    guard = guarded(script)
    assert guard.stdout.readline().strip() == "set()"
    assert end(guard)[0] == 0
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
