"""What a host leaves behind when all its programs are over: nothing should be."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path

from workloads.sandboxes import guard
from workloads.sandboxes.contract import SandboxKind
from workloads.sandboxes.leaks import leaks
from workloads.sandboxes.processes import called
from workloads.sandboxes.supervisor import below, kill

SETTLE_S = 1.0
"""What was told to end has ended by then."""
_LOOK_S = 0.02


async def remains(folder: Path, owner: str, ports: Iterable[int], kind: SandboxKind | None) -> list[str]:
    """In words, a line each: what sandboxes left (``leaks``) and processes that agents, guests or tools
    started below us, which are ended then. It raises nothing: a run is not lost for it.

    ``kind``: of the sandboxes, None without; folder and processes are looked at all the same.
    """
    started = await _started()
    found = [f"process {pid}: {called(pid)}" for pid in sorted(started)]
    try:
        said = leaks(folder, owner, ports, engine=getattr(kind, "uses_engine", False))
    except Exception as error:
        said = [f"what sandboxes left could not be looked for: {type(error).__name__}: {error}"]
    kill(started)
    return found + [line for line in said if line not in found]


async def _started() -> set[int]:
    """Processes below us but the guards, which end with us; those that are about to end get some time."""
    until = time.monotonic() + SETTLE_S
    while left := below(os.getpid()) - guard.pids():
        if time.monotonic() > until:
            break
        await asyncio.sleep(_LOOK_S)
    return left
