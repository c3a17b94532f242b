"""Processes of this machine by /proc: who lives, whose mark they bear, killing those."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

NAME = "BENCH_SANDBOX"
"""In the environment of every process of a sandbox: the sandbox's name."""
OWNER = "BENCH_SANDBOX_OWNER"
"""And the run's (``SandboxOptions.owner``)."""

_SUBREAPER = 36


class Process(NamedTuple):
    """A process that cannot be taken for another with its number: when it started (ticks after boot), of
    which boot of the machine, in which namespace of process numbers."""

    pid: int
    start: int
    boot: str
    space: str

    @classmethod
    def this(cls) -> Process:
        """We."""
        return cls(os.getpid(), _started(os.getpid()) or 0, boot(), _space())

    def gone(self) -> bool:
        """Whether it has ended (a zombie has). Of another namespace nobody here knows: then it has not."""
        if self.boot != boot():
            return True
        return self.space == _space() and _started(self.pid) != self.start


def marked(key: str, value: str | None = None) -> list[int]:
    """Living processes with ``key`` (and that value) in their environment, as far as we may look."""
    wanted = f"{key}={value or ''}".encode()
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            has = wanted in words if value is not None else any(word.startswith(wanted) for word in words)
            if has and _started(pid) is not None:
                found.append(pid)
    return found


def kill_marked(
    key: str, value: str, limit_s: float = 5.0, *, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:  # fmt: skip
    """SIGKILL all that bear the mark, until none is left. Those that are after ``limit_s``."""
    until = clock() + limit_s
    while found := marked(key, value):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if clock() > until:
            return found
        sleep(0.005)
    return []


def adopt() -> None:
    """From here on what loses its parent below us becomes a child of ours, and is found as such."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def called(pid: int) -> str:
    """What a process is, for people: its command, shortened."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return words.strip()[:60]
    return "?"


def _started(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def boot() -> str:
    """Which boot of the machine this is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _space() -> str:
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")
