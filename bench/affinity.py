"""Which cores this process runs on, and whether before others, for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


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
    ordinary ones. Who is real-time already, or nice, stays what it is. Not for two at once in one thread.
    """
    own, there = _in_front()
    try:
        yield there
    finally:
        if own is not None:
            _back_to(own)


def _in_front() -> tuple[int | None, bool]:
    """Raise this thread's priority: its policy before (None: nothing to change back), and whether it is
    real-time now."""
    if not hasattr(os, "sched_setscheduler"):
        return None, False
    try:
        before = os.sched_getscheduler(0)
        if before & ~os.SCHED_RESET_ON_FORK in (os.SCHED_RR, os.SCHED_FIFO):
            return None, True
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            return None, False
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        return None, False
    return before, True


def _back_to(policy: int) -> None:
    """An rtprio limit permits to raise and to lower, but not to take reset-on-fork back."""
    for one in (policy, policy | os.SCHED_RESET_ON_FORK):
        with suppress(OSError):
            os.sched_setscheduler(0, one, os.sched_param(0))
            return
