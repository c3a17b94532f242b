"""The event log of a gateway: an observer that appends JSON lines (docs/gateway-operations.md).

Nothing of a prompt or a reply is ever in it. Times are seconds since the gateway began; the first line
of each start of a gateway says when that was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson

from systems.gateway.appending import FLUSH_S, Appending
from systems.gateway.observe import Passage
from vocabulary import GateEvent, KeepEvent

FORMAT = "gateway-events/1"
"""In the first line; another number where a reader of this one would go wrong."""
NAME_CHARS = 256
"""Of a name that a client chose."""

FIELDS = tuple(field.name for field in dataclasses.fields(Passage))
_values = attrgetter(*FIELDS)
_QUOTING = ("error", "refused", "lost")
"""Outcomes whose reason may quote what the client sent or the engine replied: their status has to do."""


class EventLog(Appending):
    """Appends to ``path``, as ``Appending`` does.

    ``system``, ``unit``: whose policies decide, and what ``served`` counts. ``wall``: Unix time at 0 s,
    ``monotonic``: the same on this machine's CLOCK_MONOTONIC.
    """

    def __init__(
        self, path: Path, *, system: str, unit: str, wall: float, monotonic: float = 0.0,
        flush_s: float = FLUSH_S,
    ) -> None:  # fmt: skip
        head = {
            "event": "log", "format": FORMAT, "system": system, "unit": unit, "wall": wall,
            "origin_monotonic": monotonic,
        }  # fmt: skip
        super().__init__(path, orjson.dumps(head), what="event log", flush_s=flush_s)

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

    def _put(self, line: Mapping[str, Any]) -> None:
        try:
            self.append(orjson.dumps(line))
        except (TypeError, ValueError):  # bytes of a header that are no UTF-8
            self.append(orjson.dumps({key: _clean(value) for key, value in line.items()}))


def _untimed(event: GateEvent | KeepEvent) -> dict[str, Any]:
    return {name: value for name, value in event._asdict().items() if name != "time"}


def _clean(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
