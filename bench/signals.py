"""SIGTERM and SIGHUP clean up as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Inside, both do what Ctrl-C does just then: KeyboardInterrupt, or the end of an event loop's main task.

    One that is ignored (nohup) stays so; where SIGINT is (a shell's ``&``) it is KeyboardInterrupt.

    Does nothing outside the main thread, which alone may set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, _interrupt) for one in ours}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt
