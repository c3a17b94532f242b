"""The standard output of an agent host: one event a line, and nothing else ever gets there."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any


class Events:
    """Says events; from any thread.

    ``lost`` is called once when nobody reads any more. ``clock``: CLOCK_MONOTONIC (s).
    """

    def __init__(
        self, fd: int, lost: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.lost = lost
        self._fd = fd
        self._clock = clock
        self._lock = threading.Lock()
        self._open = True

    def say(self, event: str, t: float | None = None, **fields: Any) -> None:
        """``t`` is now unless it is said."""
        at = self._clock() if t is None else t
        line = json.dumps({"event": event, "t": at, **fields}, default=str).encode() + b"\n"
        with self._lock:
            if not self._open:
                return
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
                return
            except OSError:
                self._open = False
        self.lost()


def claim_stdout() -> int:
    """A descriptor for what goes to standard output now; from here on prints go to standard error.

    Guests print, and so do the commands they start: on the level of descriptors there is no way past it.
    """
    claimed = os.dup(1)  # not inherited by children
    os.dup2(2, 1)
    return claimed
