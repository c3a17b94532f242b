"""Processes of the gateway's benchmarks: fake engines, routers, and what the kernel says of them."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from systems.provision import process as provisioned
from systems.provision.process import free_port

ROOT = Path(__file__).parents[2]
START_S = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


class NotStarted(RuntimeError):
    """A process that does not come up; the message has its last words."""


class FakeEngine:
    """``fake_engine.py`` as a process; keeps its port over restarts. ``calls``: its call log, if it shall
    write one. Use as ``with``."""

    def __init__(self, *, first_s: float = 0.05, gap_s: float = 0.01, calls: Path | None = None) -> None:
        self.calls = calls
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._times = (first_s, gap_s)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """0 where it does not run."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Up when it returns. Raises NotStarted."""
        self.begin()
        self.ready()

    def begin(self) -> None:
        """Start it, from a thread that lives on: it dies with that one."""
        first_s, gap_s = self._times
        log = [] if self.calls is None else ["--calls", str(self.calls)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gateway_parts.fake_engine", "--port", str(self.port),
             "--first", str(first_s), "--gap", str(gap_s), "--parent", str(os.getpid()),
             *log],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, start_new_session=True,
        )  # fmt: skip

    def ready(self) -> None:
        """Wait until it answers. Raises NotStarted."""
        assert self._process is not None  # it was begun
        try:
            wait_for(self.url + "/health", self._process, START_S)
        except BaseException:  # Ctrl-C, too
            self.kill()
            raise

    def kill(self) -> None:
        """At once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Asked to; idempotent."""
        self._end(signal.SIGTERM)

    def pause(self, paused: bool) -> None:
        """It hangs, with its connections open, or goes on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def set(self, **values: object) -> None:
        """``first_s``, ``gap_s``, ``hold``, ``hang_metrics``: see fake_engine.py."""
        fetch(self.url + "/fake", json.dumps(values).encode())

    def facts(self) -> dict[str, Any]:
        """What it says of itself."""
        return dict(json.loads(fetch(self.url + "/fake", limit_s=2.0)))

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(how)
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Beside:
    """Another router, started from a command line. Use as ``with``.

    ``{port}``, ``{url}`` and ``{metrics}`` in the words become the port to listen on, the engine's URL
    and a second free port; without ``{port}`` the flags of vllm-router are added.
    """

    def __init__(self, words: Sequence[str], engine: str, output: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.name = Path(words[0]).name
        self.command = fill(words, self.port, engine, free_port())
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        try:
            wait_for(self.url + "/health", self._process, START_S)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the leader of its group."""
        return self._process.pid if self._process is not None else 0

    def stop(self) -> None:
        """Nothing of its group is left; idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fill(words: Sequence[str], port: int, engine: str, metrics: int) -> list[str]:
    """The command with its places filled."""
    if not any("{port}" in word for word in words):
        words = [*words, "--host", "127.0.0.1", "--port", "{port}", "--worker-urls", "{url}",
                 "--prometheus-port", "{metrics}"]  # fmt: skip
    places: Mapping[str, str] = {"{port}": str(port), "{url}": engine, "{metrics}": str(metrics)}
    filled = list(words)
    for place, value in places.items():
        filled = [word.replace(place, value) for word in filled]
    return filled


def taken(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free(port: int) -> bool:
    """Whether one could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def fetch(url: str, body: bytes | None = None, limit_s: float = 5.0) -> bytes:
    """GET, or POST with a body. Raises OSError."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=limit_s) as answer:
        return bytes(answer.read())


def wait_for(url: str, process: subprocess.Popen[bytes], limit_s: float) -> None:
    """Until it answers 200. Raises NotStarted if it ends or takes too long."""
    deadline = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(OSError):
            fetch(url, limit_s=1.0)
            return
        if process.poll() is not None or time.monotonic() > deadline:
            how = "no answer" if process.poll() is None else f"ended with {process.returncode}"
            raise NotStarted(f"{url}: {how}; command: {process.args!r}")
        time.sleep(0.02)


def group(leader: int) -> Iterator[int]:
    """The living processes of a process group."""
    return (pid for pid, _ in provisioned.group(leader))


def cpu_s(leader: int) -> float:
    """CPU seconds of a process group so far, all threads; a tick is 10 ms on most machines."""
    total = 0.0
    for pid in group(leader):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def memory_mb(pid: int) -> float:
    """Resident memory (10**6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def descriptors(pid: int) -> int:
    """Open file descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def raise_descriptors() -> int:
    """Lift our soft limit of descriptors, which children inherit, to the hard one; the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
