"""Memory that is free now, within the cgroup's limit."""

from __future__ import annotations

from bench.doctor.check import MISSING, OK, Finding, Here, Simple
from bench.memory import CGROUP, MEMINFO, free_gb

LIVE_GB = 4.0
"""A vLLM server with a tiny model takes 1.8 GB, and more while it starts."""


def _look(here: Here) -> Finding:  # noqa: ARG001
    free = free_gb(MEMINFO, CGROUP)
    if free is None:
        return Finding(MISSING, "cannot tell how much is free", "measured runs need 4 GB")
    if free < LIVE_GB:
        return Finding(MISSING, f"{free:.1f} GB free", "a vLLM server needs 4 GB: stop something")
    return Finding(OK, f"{free:.1f} GB free")


CHECK = Simple("memory", 11, _look)
