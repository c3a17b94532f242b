"""Server-sent events: cut from a stream as they come, and written (HTML Living Standard, 9.2)."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from workloads.agents.relay.bodies import BadBody, parsed, written

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
DONE = b"[DONE]"
"""What ends a stream of /v1/chat/completions, in place of JSON."""


class Event(NamedTuple):
    """One event. ``raw``: its bytes, the blank line behind it included; ``text``: its data; ``data``: that as
    JSON, None where it is no object (a comment, DONE)."""

    raw: bytes
    text: bytes
    data: dict[str, Any] | None


class Splitter:
    """Bytes in, whole events out."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, data: bytes) -> list[Event]:
        """The events that end in ``data``."""
        self._left += data
        found, begin = [], 0
        for end in _END.finditer(self._left):
            found.append(_event(self._left[begin : end.end()]))
            begin = end.end()
        self._left = self._left[begin:]
        return found

    @property
    def left(self) -> bytes:
        """What came of an event that has not ended."""
        return self._left


def _event(raw: bytes) -> Event:
    lines = [line for line in raw.splitlines() if line.startswith(b"data:")]
    text = b"\n".join(line[5:].removeprefix(b" ") for line in lines)
    if not text or text == DONE:
        return Event(raw, text, None)
    try:
        return Event(raw, text, parsed(text))
    except BadBody:
        return Event(raw, text, None)


def event(data: dict[str, Any], kind: str = "") -> bytes:
    """As it goes over the wire; ``kind``: its type, where the dialect names it in a line of its own."""
    head = f"event: {kind}\n".encode() if kind else b""
    return head + b"data: " + written(data) + b"\n\n"
