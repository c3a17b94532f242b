"""What our gateway wrote of a run: how long its gate held calls, what gate and retention did, and what its
process table was charged.

Read where it tells something: a gate other than the open one, retention, or several engines, over which the
service of one program adds up (docs/gateway-operations.md has the log's format).
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.drivers.policy_events import gate_row, keep_rows
from bench.errors import InvalidRun
from bench.live.logs import POLL_S, EngineLog, Tail
from systems.gateway.events_reader import gate_event, keep_event
from vocabulary import Decision, GateEvent, KeepEvent, on_grid

PATIENCE_S = 5.0
"""The gateway writes once a second."""


@dataclass(frozen=True)
class Books:
    """``held``: seconds at the gate, by PROGRAM.THREAD.INDEX, of calls that were held; ``served``: by
    program, in the scheduler's unit; of ``calls`` in all ``by_log`` were charged from schedulers' logs.
    ``gate``, ``kept``: what gate and retention did, in seconds since ``origin`` of CLOCK_MONOTONIC."""

    held: Mapping[str, float]
    served: Mapping[int, float]
    calls: int
    by_log: int
    gate: Sequence[GateEvent] = ()
    kept: Sequence[KeepEvent] = ()
    origin: float = 0.0

    def decisions(self, begin: float) -> list[Decision]:
        """Rows of the table of decisions; times from ``begin`` (s of CLOCK_MONOTONIC) on."""
        later = self.origin - begin
        rows = [gate_row(event._replace(time=event.time + later)) for event in self.gate]
        for event in self.kept:
            rows += keep_rows(event._replace(time=event.time + later, until=event.until + later))
        return sorted(rows, key=lambda row: row.time)

    def said(self) -> dict[str, Any]:
        """How often gate and retention did what, as far as they did anything."""
        gate = Counter(f"{event.what}: {event.reason}" for event in self.gate)
        kept = Counter(event.what for event in self.kept)
        found = {"gate_events": dict(sorted(gate.items())), "keep_events": dict(sorted(kept.items()))}
        return {name: counts for name, counts in found.items() if counts}

    def against(self, logs: Sequence[EngineLog]) -> dict[str, Any]:
        """The table beside the sums over all engines' logs, program by program."""
        sums: dict[int, float] = {}
        engines: dict[int, set[int]] = {}
        for log in logs:
            for key, row in log.calls.items():
                program = int(key.partition(".")[0])
                sums[program] = sums.get(program, 0.0) + row["served"]
                engines.setdefault(program, set()).add(log.engine)
        equal = sum(math.isclose(self.served.get(p, 0.0), total, abs_tol=1e-6) for p, total in sums.items())
        return {
            "programs": len(sums),
            "equal": equal,
            "over_several_engines": sum(len(found) > 1 for found in engines.values()),
            "calls": self.calls,
            "charged_from_logs": self.by_log,
        }


class FrontLog:
    """The event log of a gateway, from ``mark`` on."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)

    def mark(self) -> None:
        """A run begins."""
        self._tail.mark()

    def gather(self, run: str, answered: set[str], *, sleep: Callable[[float], None] = time.sleep) -> Books:
        """What was written of ``run``; waits until every call of ``answered`` (PROGRAM.THREAD.INDEX) has
        left. Raises InvalidRun if one has not."""
        deadline = time.monotonic() + PATIENCE_S
        programs = {key.partition(".")[0] for key in answered}
        while True:
            lines = [line for line in self._tail.lines() if _concerns(line, run)]
            late = time.monotonic() > deadline
            lost = answered.difference(_key(line) for line in lines if line["event"] == "left")
            open_ = programs.difference(_program(line) for line in lines if line["event"] == "ended")
            if not lost and (not open_ or late):  # who forgot to say goodbye keeps nobody
                return books(lines, self._origin())
            if late:
                raise InvalidRun(
                    f"run {run}: {len(lost)} of {len(answered)} answered calls are not in "
                    f"{self._tail.path}, {min(lost)} first"
                )
            sleep(POLL_S)

    def _origin(self) -> float:
        """When the gateway began (s of CLOCK_MONOTONIC): the last of them, if it was started again.

        Raises InvalidRun if its log does not say.
        """
        try:
            with self._tail.path.open("rb") as file:
                heads = [json.loads(line) for line in file if line.startswith(b'{"event":"log"')]
            return float(heads[-1]["origin_monotonic"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InvalidRun(f"{self._tail.path}: no first line with origin_monotonic ({error!r})") from None


def _concerns(line: Mapping[str, Any], run: str) -> bool:
    """Lines of its programs, and which calls were held: that line has no name."""
    return line["event"] == "held" or str(line.get("name")).startswith(f"{run}.")


def _program(line: Mapping[str, Any]) -> str:
    return str(line["name"]).rpartition(".")[2]


def _key(line: Mapping[str, Any]) -> str:
    """PROGRAM.THREAD.INDEX of a line."""
    return f"{_program(line)}.{str(line['thread']).replace('.', '_')}.{line['index']}"


def books(lines: Sequence[Mapping[str, Any]], origin: float = 0.0) -> Books:
    """From a run's lines; ``origin``: when the gateway began, in seconds of CLOCK_MONOTONIC."""
    held: dict[str, float] = {}
    served: dict[int, float] = {}
    left = [line for line in lines if line["event"] == "left"]
    waited = {line["seq"] for line in lines if line["event"] == "held"}
    for line in left:
        program = int(_program(line))
        served[program] = served.get(program, 0.0) + float(line["served"])
        if line["seq"] in waited:
            until = line["t_admit"] if line["t_admit"] is not None else line["t_end"]
            held[_key(line)] = on_grid(until - line["t_arrive"])
    by_log = sum(line["source"] == "log" for line in left)
    gate = [gate_event(line)._replace(program=program) for line, program in _of("gate", lines)]
    kept = [keep_event(line)._replace(program=program) for line, program in _of("kept", lines)]
    return Books(held, served, len(left), by_log, gate, kept, origin)


def _of(event: str, lines: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Lines of a kind, with the number that their program has in the run."""
    return [(line, int(_program(line))) for line in lines if line["event"] == event]
