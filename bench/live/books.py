"""What our gateway wrote of a run: how long its gate held calls, and what its process table was charged.

Read where it tells something: a gate other than the open one, or several engines, over which the service of
one program adds up (docs/gateway-operations.md has the log's format).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import InvalidRun
from bench.live.logs import POLL_S, EngineLog, Tail
from vocabulary import on_grid

HELD_S = 0.005
"""Less than this at the gate is the gateway's own time, which is overhead."""
PATIENCE_S = 5.0
"""The gateway writes once a second."""


@dataclass(frozen=True)
class Books:
    """``held``: seconds at the gate, by PROGRAM.THREAD.INDEX, of calls that were held; ``served``: by
    program, in the scheduler's unit; of ``calls`` in all ``by_log`` were charged from schedulers' logs."""

    held: Mapping[str, float]
    served: Mapping[int, float]
    calls: int
    by_log: int

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
        while True:
            left = [line for line in self._tail.lines() if _of(line, run)]
            lost = answered.difference(map(_key, left))
            if not lost:
                return books(left)
            if time.monotonic() > deadline:
                raise InvalidRun(
                    f"run {run}: {len(lost)} of {len(answered)} answered calls are not in "
                    f"{self._tail.path}, {min(lost)} first"
                )
            sleep(POLL_S)


def _of(line: Mapping[str, Any], run: str) -> bool:
    return line["event"] == "left" and str(line["name"]).startswith(f"{run}.")


def _key(line: Mapping[str, Any]) -> str:
    """PROGRAM.THREAD.INDEX of a line."""
    program = str(line["name"]).rpartition(".")[2]
    return f"{program}.{str(line['thread']).replace('.', '_')}.{line['index']}"


def books(left: Sequence[Mapping[str, Any]]) -> Books:
    """From the lines of calls that left."""
    held: dict[str, float] = {}
    served: dict[int, float] = {}
    for line in left:
        program = int(str(line["name"]).rpartition(".")[2])
        served[program] = served.get(program, 0.0) + float(line["served"])
        until = line["t_admit"] if line["t_admit"] is not None else line["t_end"]
        if (seconds := until - line["t_arrive"]) >= HELD_S:
            held[_key(line)] = on_grid(seconds)
    return Books(held, served, len(left), sum(line["source"] == "log" for line in left))
