"""How fast this core is just now: figures of a shared machine mean little without it."""

from __future__ import annotations

import time

TURNS = 2_000_000


def ns_per_turn() -> float:
    """Nanoseconds of CPU per turn of ``for i in range(n): x += i``; 32 on the quiet reference machine."""
    x = 0
    start = time.process_time()
    for i in range(TURNS):
        x += i
    return (time.process_time() - start) / TURNS * 1e9
