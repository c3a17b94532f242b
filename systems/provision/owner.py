"""Who a process is, so that a recycled number is never taken for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Owner(NamedTuple):
    """A process: its number, when it started (clock ticks after boot), of which boot; ``str``: as text."""

    pid: int
    start: int
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}:{self.start}:{self.boot}"


def owner(pid: int) -> Owner | None:
    """Of a living process; None if it is gone (a zombie is)."""
    start = started(pid)
    return None if start is None else Owner(pid, start, boot())


def myself() -> Owner:
    """This process."""
    found = owner(os.getpid())
    if found is None:
        raise RuntimeError("/proc does not know this process")
    return found


def alive(text: str) -> bool:
    """Whether the process ``str(Owner)`` named still runs; False for what is no such text."""
    try:
        pid, start, where = text.split(":")
        return owner(int(pid)) == Owner(int(pid), int(start), where)
    except ValueError:
        return False


def started(pid: int) -> int | None:
    """Clock ticks after boot at which a living process started, None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def boot() -> str:
    """Which boot of the machine this is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
