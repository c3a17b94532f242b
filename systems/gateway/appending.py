"""A file of JSON lines that grows while a gateway serves: written by a thread, never in anybody's way."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

FLUSH_S = 1.0
MOST_LINES = 200_000
"""Held back while the disk does not take them; what comes on top is dropped and counted."""


class Appending:
    """Appends to ``path``; lines are written once in ``flush_s`` seconds by a thread, and by ``close``.

    ``head``: the first line that is written; ``what``: the file's name for people. ``new``: there must be no
    such file. ``flush_s`` 0: nobody writes but ``flush``. ``dropped``: lines that never reached the file,
    which says so itself (event ``dropped``) once there is room. Opening raises OSError. Nothing does later: a
    full disk is said once, on stderr.
    """

    def __init__(
        self, path: Path, head: bytes, *, what: str, flush_s: float = FLUSH_S, new: bool = False
    ) -> None:
        self.path = path
        self.dropped = 0
        self._what = what
        self._lines: deque[bytes] = deque()
        self._unsaid = 0  # dropped since the file last said how many
        self._warned = False
        self._lock = threading.Lock()
        self._closing = threading.Event()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if new else 0)
        self._file = os.open(path, flags, 0o644)
        self._mend()
        self._first = head  # until it is in the file
        self._thread = threading.Thread(target=self._run, args=(flush_s,), name=what, daemon=True)
        if flush_s:
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """What is told now is forgotten."""
        return self._closing.is_set()

    def append(self, line: bytes) -> None:
        """One more line, without its end. Never raises."""
        if self._closing.is_set() or len(self._lines) >= MOST_LINES:
            self.drop(1)
        else:
            self._lines.append(line)

    def drop(self, lines: int) -> None:
        """So many are lost."""
        self.dropped += lines
        self._unsaid += lines

    def flush(self) -> None:
        """Write what is held back. Several may ask at once; never raises."""
        with self._lock:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            lost = self._unsaid
            if lost:
                lines.insert(0, orjson.dumps({"event": "dropped", "lines": lost}))
            if self._first:
                lines.insert(0, self._first)
            if lines and not self._write(lines):
                self.drop(len(lines) - bool(lost) - bool(self._first))
            elif lines:
                self._unsaid -= lost
                self._first = b""

    def close(self) -> None:
        """Write the rest and close the file; idempotent. What is told later is forgotten."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()
        os.close(self._file)

    def _run(self, flush_s: float) -> None:
        while not self._closing.wait(flush_s):
            self.flush()

    def _write(self, lines: list[bytes]) -> bool:
        """All of them or none."""
        data = memoryview(b"\n".join(lines) + b"\n")
        size = os.fstat(self._file).st_size
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            self._warn(error)
            return False
        return True

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            with contextlib.suppress(OSError, ValueError):  # stderr may be gone, too
                print(
                    f"{self._what}: cannot write {self.path}: {error.strerror}; the gateway goes on, lines "
                    f"are dropped and counted until there is room",
                    file=sys.stderr,
                )

    def _mend(self) -> None:
        """A line that a crash cut short ends here."""
        with contextlib.suppress(OSError):  # not a file that can be read back
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")
