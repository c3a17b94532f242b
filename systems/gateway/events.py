"""The event log of a gateway: an observer that appends JSON lines (docs/gateway-operations.md).

Nothing of a prompt or a reply is ever in it. Times are seconds since the gateway began; the first line
of each start of a gateway says when that was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections import deque
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from systems.gateway.observe import Passage
from vocabulary import GateEvent, KeepEvent

FORMAT = "gateway-events/1"
"""In the first line; another number where a reader of this one would go wrong."""
FLUSH_S = 1.0
MOST_LINES = 200_000
"""Held back while the disk does not take them; what comes on top is dropped and counted."""
NAME_CHARS = 256
"""Of a name that a client chose."""

FIELDS = tuple(field.name for field in dataclasses.fields(Passage))
_values = attrgetter(*FIELDS)
_QUOTING = ("error", "refused", "lost")
"""Outcomes whose reason may quote what the client sent or the engine replied: their status has to do."""


class EventLog:
    """Appends to ``path``; lines are written once in ``flush_s`` seconds by a thread, and by ``close``.

    ``system``, ``unit``: whose policies decide, and what ``served`` counts. ``wall``: Unix time at 0 s,
    ``monotonic``: the same on this machine's CLOCK_MONOTONIC.
    ``flush_s`` 0: nobody writes but ``flush``. ``dropped``: lines that never reached the file.
    Opening raises OSError. Nothing does later: a full disk is said once, on stderr.
    """

    def __init__(
        self, path: Path, *, system: str, unit: str, wall: float, monotonic: float = 0.0,
        flush_s: float = FLUSH_S,
    ) -> None:  # fmt: skip
        self.path = path
        self.dropped = 0
        self._lines: deque[bytes] = deque()
        self._unsaid = 0  # dropped since the file last said how many
        self._warned = False
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._mend()
        head = {
            "event": "log", "format": FORMAT, "system": system, "unit": unit, "wall": wall,
            "origin_monotonic": monotonic,
        }  # fmt: skip
        self._first = orjson.dumps(head)  # until it is in the file
        self._thread = threading.Thread(target=self._run, args=(flush_s,), name="event log", daemon=True)
        if flush_s:
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def arrived(self, call: Passage) -> None:
        """Who calls, and what for."""
        self._put(
            {
                "event": "arrived", "t": call.t_arrive, "seq": call.seq, "program": call.program,
                "name": call.name[:NAME_CHARS], "thread": call.thread[:NAME_CHARS], "index": call.index,
                "endpoint": call.endpoint, "attempt": call.attempt,
            }
        )  # fmt: skip

    def held(self, call: Passage) -> None:
        """Stamped with its arrival: that is when the gate was asked."""
        self._put({"event": "held", "t": call.t_arrive, "seq": call.seq})

    def sent(self, call: Passage) -> None:
        """Again where another engine gets it."""
        self._put({"event": "sent", "t": call.t_send, "seq": call.seq, "engine": call.engine})

    def first(self, call: Passage) -> None:
        """The first bytes of its reply."""
        self._put({"event": "first", "t": call.t_first, "seq": call.seq})

    def left(self, call: Passage) -> None:
        """All that is known of it."""
        line: dict[str, Any] = {"event": "left", "t": call.t_end}
        line.update(zip(FIELDS, _values(call), strict=True))
        line["name"], line["thread"] = call.name[:NAME_CHARS], call.thread[:NAME_CHARS]
        if call.outcome in _QUOTING:
            line["reason"] = ""
        self._put(line)

    def started(self, program: int, name: str, now: float) -> None:
        """A program has a row."""
        self._put({"event": "started", "t": now, "program": program, "name": name[:NAME_CHARS]})

    def ended(self, program: int, name: str, why: str, now: float) -> None:
        """Its row is gone."""
        self._put({"event": "ended", "t": now, "program": program, "name": name[:NAME_CHARS], "why": why})

    def engine(self, engine: int, what: str, reason: str, now: float) -> None:
        """An engine is up, down or slow."""
        self._put({"event": "engine", "t": now, "engine": engine, "what": what, "reason": reason})

    def gate(self, event: GateEvent, name: str) -> None:
        """What the gate did to a program, and why."""
        self._put({"event": "gate", "t": event.time, "name": name[:NAME_CHARS], **_untimed(event)})

    def kept(self, event: KeepEvent, name: str) -> None:
        """What the retention policy thought, or what came of it; endless and unknown numbers are null."""
        line = {"event": "kept", "t": event.time, "name": name[:NAME_CHARS], **_untimed(event)}
        line["thread"], line["tool"] = event.thread[:NAME_CHARS], event.tool[:NAME_CHARS]
        self._put(line)

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
                self._drop(len(lines) - bool(lost) - bool(self._first))
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

    def _put(self, line: Mapping[str, Any]) -> None:
        if self._closing.is_set() or len(self._lines) >= MOST_LINES:
            self._drop(1)
            return
        try:
            self._lines.append(orjson.dumps(line))
        except (TypeError, ValueError):  # bytes of a header that are no UTF-8
            self._lines.append(orjson.dumps({key: _clean(value) for key, value in line.items()}))

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        self._unsaid += lines

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
                    f"event log: cannot write {self.path}: {error.strerror}; the gateway goes on, lines are "
                    f"dropped and counted until there is room",
                    file=sys.stderr,
                )

    def _mend(self) -> None:
        """A line that a crash cut short ends here."""
        with contextlib.suppress(OSError):  # not a file that can be read back
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")


def _untimed(event: GateEvent | KeepEvent) -> dict[str, Any]:
    return {name: value for name, value in event._asdict().items() if name != "time"}


def _clean(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
