"""Waits for the process that makes sandboxes to end; what it left, if it was killed, is swept.

    python -m workloads.sandboxes.guard STATE_FOLDER PID      (its standard input: a pipe of process PID)

Supervisors notice by themselves that we are gone. Containers and folders do not, so one such process stands
by for each process that makes sandboxes. Until then it has imported next to nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENDS_S = 10.0
"""A process whose pipe is closed is gone by then; else it goes on, and clears up itself."""
_PIDS: set[int] = set()
_ENDS: dict[tuple[int, Path], int] = {}
"""Our end of the guard's pipe, by our process number (a fork needs its own guard) and state folder."""


def watch(state: Path) -> None:
    """Have a guard; again does nothing."""
    if (os.getpid(), state) in _ENDS:
        return
    read_end, write_end = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    root = str(Path(__file__).parents[2])
    wires = [(os.POSIX_SPAWN_DUP2, end, to) for end, to in ((read_end, 0), (null, 1), (null, 2))]
    words = [sys.executable, "-m", "workloads.sandboxes.guard", str(state), str(os.getpid())]
    try:
        pid = os.posix_spawn(
            sys.executable, words, {**os.environ, "PYTHONPATH": root}, setsid=True,
            file_actions=wires,
        )  # fmt: skip
    finally:
        os.close(read_end)
        os.close(null)
    _ENDS[os.getpid(), state] = write_end
    _PIDS.add(pid)


def pids() -> set[int]:
    """Numbers of the guards that we started."""
    return set(_PIDS)


def main() -> None:
    """See above."""
    state, pid = Path(sys.argv[1]), int(sys.argv[2])
    os.chdir("/")
    while os.read(0, 4096):
        pass
    if not any(state.glob("*.json")):
        return
    import time

    from workloads.sandboxes.catalog import sweep
    from workloads.sandboxes.ledger import Ledger

    ledger = Ledger(state)
    until = time.monotonic() + ENDS_S
    while mine := [entry for entry in ledger.entries() if entry.process.pid == pid]:
        if all(entry.orphan for entry in mine):
            sweep()
            return
        if time.monotonic() > until:
            return
        time.sleep(0.02)


if __name__ == "__main__":
    main()
