"""Work that can go on beside a run, on another core."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T]) -> Callable[[], T]:
    """Start ``work`` in a forked process; the function returned waits for its result.

    If the process dies or ``work`` raises there, it is done (or raises) here.
    ``work`` must be a pure function of what is in memory now.
    """
    context = get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(send, work), daemon=True)
    process.start()
    send.close()

    def result() -> T:
        try:
            done, value = receive.recv()
        except EOFError:
            done, value = False, None
        process.join()
        return value if done else work()

    return result


def _child(send: Connection, work: Callable[[], object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    try:
        answer = (True, work())
    except BaseException:  # a user's program may raise anything; it will, again, where it can be named
        answer = (False, None)
    send.send(answer)
