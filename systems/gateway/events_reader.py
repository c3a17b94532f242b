"""Reads the event log of a gateway (``events.EventLog``; docs/gateway-operations.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from systems.gateway.events import FORMAT
from systems.gateway.observe import OUTCOMES, Passage
from vocabulary import GateEvent, KeepEvent


class EventsError(ValueError):
    """The file is no event log, or not one we read; the message names file, line and field."""


class Program(NamedTuple):
    """A program's time in the table (s); ``why`` is "" and ``end`` NaN where it was still there."""

    number: int
    name: str
    start: float
    end: float = math.nan
    why: str = ""


class EngineEvent(NamedTuple):
    """``what``: up, down or slow, at ``time`` (s)."""

    time: float
    engine: int
    what: str
    reason: str


@dataclass
class GatewayRun:
    """One start of a gateway, until its last line. Times in seconds since ``wall`` (Unix time).

    ``calls``: those that left, in that order; ``open``: seq -> engine (-1: none yet) of those that did
    not, and ``begun`` those of them whose reply had begun; ``held``: seqs the gate held; ``gate``: what it
    did, ``kept``: what the retention policy thought. ``dropped``: lines that were lost; ``torn``: a crash
    cut the last one.
    """

    system: str
    unit: str
    wall: float
    calls: list[Passage] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    programs: dict[int, Program] = field(default_factory=dict)
    engines: list[EngineEvent] = field(default_factory=list)
    gate: list[GateEvent] = field(default_factory=list)
    kept: list[KeepEvent] = field(default_factory=list)
    dropped: int = 0
    torn: bool = False


def read_events(path: Path) -> list[GatewayRun]:
    """The runs of a file, one per start of a gateway. Raises EventsError, or OSError if it cannot be read."""
    runs: list[GatewayRun] = []
    lines = path.read_bytes().split(b"\n")
    tail = lines.pop()
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            if not runs or not _begins(lines[number : number + 1]):
                raise EventsError(f"{path}:{number}: not a JSON object ({error})") from None
            runs[-1].torn = True
            continue
        try:
            _take(runs, line)
        except EventsError as error:
            raise EventsError(f"{path}:{number}: {error}") from None
    if not runs:
        raise EventsError(f"{path}:1: an event log begins with a line of format {FORMAT!r}, there is none")
    runs[-1].torn = runs[-1].torn or bool(tail)
    return runs


def _begins(lines: list[bytes]) -> bool:
    """Whether a gateway starts there: the line before may be torn."""
    return bool(lines) and lines[0].startswith(b'{"event":"log"')


def _take(runs: list[GatewayRun], line: Any) -> None:
    kind = line.get("event") if isinstance(line, dict) else None
    if kind == "log":
        runs.append(_header(line))
        return
    if not runs:
        raise EventsError(f"an event log begins with a line of format {FORMAT!r}, got {str(line)[:60]}")
    if not isinstance(kind, str) or kind not in _TAKE:
        raise EventsError(f"field event: one of log, {', '.join(_TAKE)}, got {kind!r}")
    try:
        _TAKE[kind](runs[-1], line)
    except KeyError as error:
        raise EventsError(f"field {error.args[0]} is missing in {kind}") from None
    except TypeError as error:
        raise EventsError(f"{kind}: {error}") from None


def _header(line: Mapping[str, Any]) -> GatewayRun:
    if line.get("format") != FORMAT:
        raise EventsError(f"field format: {FORMAT!r} is what we read, got {line.get('format')!r}")
    try:
        return GatewayRun(str(line["system"]), str(line["unit"]), float(line["wall"]))
    except (KeyError, TypeError, ValueError) as error:
        raise EventsError(f"first line: system, unit and wall are needed ({error!r})") from None


def _arrived(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.open[line["seq"]] = -1


def _held(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.held.add(line["seq"])


def _sent(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.open[line["seq"]] = line["engine"]


def _first(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.begun.add(line["seq"])


_TIMES = {one.name for one in fields(Passage) if one.name.startswith("t_")}


def _left(run: GatewayRun, line: Mapping[str, Any]) -> None:
    values = {one.name: line[one.name] for one in fields(Passage)}
    for name in _TIMES:
        values[name] = math.nan if values[name] is None else float(values[name])
    if values["outcome"] not in OUTCOMES:
        raise EventsError(f"field outcome: one of {', '.join(OUTCOMES)}, got {values['outcome']!r}")
    run.calls.append(Passage(**values))
    run.open.pop(line["seq"], None)
    run.begun.discard(line["seq"])


def _started(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.programs[line["program"]] = Program(line["program"], line["name"], float(line["t"]))


def _ended(run: GatewayRun, line: Mapping[str, Any]) -> None:
    number = line["program"]
    start = run.programs[number].start if number in run.programs else math.nan
    run.programs[number] = Program(number, line["name"], start, float(line["t"]), line["why"])


def _engine(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.engines.append(EngineEvent(float(line["t"]), line["engine"], line["what"], line["reason"]))


def _gate(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.gate.append(gate_event(line))


def gate_event(line: Mapping[str, Any]) -> GateEvent:
    """Of a line ``gate``. Raises KeyError for a field that is missing."""
    rest = [line[name] for name in GateEvent._fields[1:]]
    return GateEvent(float(line["t"]), *rest)


def _kept(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.kept.append(keep_event(line))


def keep_event(line: Mapping[str, Any]) -> KeepEvent:
    """Of a line ``kept``; a deadline that is null is endless. Raises KeyError for a field that is missing."""
    values = {name: line[name] for name in KeepEvent._fields[1:]}
    for name in ("keep_price", "evict_price", "regret"):
        values[name] = math.nan if values[name] is None else float(values[name])
    values["until"] = math.inf if values["until"] is None else float(values["until"])
    return KeepEvent(float(line["t"]), **values)


def _dropped(run: GatewayRun, line: Mapping[str, Any]) -> None:
    run.dropped += int(line["lines"])


_TAKE: Mapping[str, Callable[[GatewayRun, Mapping[str, Any]], None]] = {
    "arrived": _arrived, "held": _held, "sent": _sent, "first": _first, "left": _left,
    "started": _started, "ended": _ended, "engine": _engine, "gate": _gate, "kept": _kept,
    "dropped": _dropped,
}  # fmt: skip
