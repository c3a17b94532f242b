"""Which cores this process runs on, and whether before others, for a while."""

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


@contextmanager
def ahead() -> Iterator[bool]:
    """This thread before all ordinary ones of its core, where that is permitted; tells whether it is.

    A client that shares a core with a server that spins is otherwise late by up to seconds, however little
    it has to do. Real-time priority (round robin, the lowest); threads and processes that it starts are
    ordinary ones.
    """
    own = _in_front()
    try:
        yield own is not None
    finally:
        if own is not None:
            os.sched_setscheduler(0, own, os.sched_param(0))


def _in_front() -> int | None:
    """Raise this thread's priority; its policy before, None where there is nothing to change back."""
    if not hasattr(os, "sched_setscheduler"):
        return None
    before = os.sched_getscheduler(0)
    if before & ~os.SCHED_RESET_ON_FORK not in (os.SCHED_OTHER, os.SCHED_BATCH):
        return None
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        return None
    return before
