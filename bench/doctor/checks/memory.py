"""Memory that is free now, within the cgroup's limit."""

from __future__ import annotations

from pathlib import Path

from bench.doctor.check import MISSING, OK, Finding, Here, Simple

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
LIVE_GB = 4.0
"""A vLLM server with a tiny model takes 1.8 GB, and more while it starts."""


def _look(here: Here) -> Finding:  # noqa: ARG001
    free = _free_gb()
    if free is None:
        return Finding(MISSING, "cannot tell how much is free", "measured runs need 4 GB")
    if free < LIVE_GB:
        return Finding(MISSING, f"{free:.1f} GB free", "a vLLM server needs 4 GB: stop something")
    return Finding(OK, f"{free:.1f} GB free")


def _free_gb() -> float | None:
    found = []
    try:
        lines = MEMINFO.read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    try:
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        found += [] if limit == "max" else [int(limit) - int(used)]
    except (OSError, ValueError):
        pass
    return min(found) / 1e9 if found else None


CHECK = Simple("memory", 11, _look)
