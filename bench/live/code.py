"""Which code measured a live cell: part of its address, beside ``bench.code``."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_DECIDING = (
    "books", "deployment", "drive", "fronted", "goodbyes", "kept", "locust", "logs", "options", "plan",
    "pool", "room", "rows", "served", "warm",
)  # fmt: skip
"""Files of this folder that decide what is measured; an edit of the others makes no cell old."""


@cache
def live_code() -> str:
    """16 hex digits over names and contents."""
    digest = hashlib.sha256()
    for name in _DECIDING:
        digest.update(f"{name}\0".encode() + (_HERE / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]
