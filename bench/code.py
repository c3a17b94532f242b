"""Which code made a result: a hash of the files that decide it.

A cell's address contains it, so an edited engine, policy, generator or metric
never answers with a result of the old one. The commit in the manifest says which
version that was; this hash also tells uncommitted edits apart.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_DECIDING = (
    "vocabulary.py", "workloads", "systems", "bench/drivers", "bench/records.py",
    "bench/metrics.py", "bench/stats.py", "bench/summary.py", "bench/offline.py", "bench/traps.py",
)  # fmt: skip
_KINDS = {".py", ".pxd", ".toml", ".json"}
"""``.pxd``: the types of a compiled build, which decide what its arithmetic does."""
_SHOWN = {"systems/latency/validations.json"}
"""What ``bench fidelity`` writes: it is shown beside results and decides none."""


@cache
def code_digest() -> str:
    """16 hex digits over names and contents of vocabulary, workloads, systems, drivers and metrics."""
    digest = hashlib.sha256()
    for path in sorted(_files()):
        digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files() -> list[Path]:
    found: list[Path] = []
    for name in _DECIDING:
        path = _ROOT / name
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.suffix in _KINDS]
    return [path for path in found if path.relative_to(_ROOT).as_posix() not in _SHOWN]
