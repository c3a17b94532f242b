"""Which cores this process runs on, for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def on_cores(chosen: frozenset[int]) -> Iterator[None]:
    """This process, and what it starts, on some cores (none: as it is)."""
    before = os.sched_getaffinity(0)
    if chosen:
        os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
