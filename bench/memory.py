"""Memory that is free now, within the cgroup's limit."""

from __future__ import annotations

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_gb(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> float | None:
    """GB (10^9 bytes): the machine's, or what the cgroup leaves of it; None if neither tells."""
    found = []
    try:
        lines = meminfo.read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    try:
        limit, used = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
        found += [] if limit == "max" else [int(limit) - int(used)]
    except (OSError, ValueError):
        pass
    return min(found) / 1e9 if found else None
