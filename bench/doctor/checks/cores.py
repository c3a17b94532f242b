"""Cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from bench.doctor.check import MISSING, OK, Finding, Here, Simple

CGROUP = Path("/sys/fs/cgroup/cpu.max")
LIVE = 2.0
"""A measured run wants one for the engine and one for the client."""


def _look(here: Here) -> Finding:  # noqa: ARG001
    cores = float(len(os.sched_getaffinity(0)))
    quota = _quota()
    text = f"{cores:g} of {os.cpu_count()} cores" + ("" if quota is None else f", {quota:g} by the cgroup")
    if min(cores, quota or cores) < LIVE:
        return Finding(MISSING, text, "measured runs need 2: engine and client would slow each other down")
    return Finding(OK, text)


def _quota() -> float | None:
    try:
        most, period = CGROUP.read_text().split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


CHECK = Simple("cores", 10, _look)
