"""What programs cost: the engines' busy seconds, shared by what each call had computed.

A step's seconds go to the calls in its batch in proportion to the tokens that it computed of each (of a
prompt's chunk all of them, of a call that decodes one). Time in which an engine stood idle is nobody's: it is
told beside (``held_s``). On a GPU these are GPU-seconds; on a CPU they are seconds of an engine that had
cores, and are called engine-seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.fidelity.server_calls import request_name
from bench.live.logs import EngineLog
from vocabulary import GRID

NAMES = {"gpu": "GPU-seconds", "cpu": "engine-seconds"}


def seconds_of(logs: Sequence[EngineLog]) -> tuple[dict[int, float], float]:
    """(by program, nobody's): seconds; together exactly the engines' busy time (``rows.totals``)."""
    found: dict[int, float] = {}
    nobody = 0.0
    for log in logs:
        end = 0.0
        for step in log.steps:
            seconds, end = step["end"] - max(step["start"], end), step["end"]
            shares = shared(seconds, [int(call[2]) for call in step["calls"]])
            if not shares:
                nobody += seconds
            for call, share in zip(step["calls"], shares, strict=True):
                program = int(request_name(str(call[0]))[1])
                found[program] = found.get(program, 0.0) + share
    return found, nobody


def shared(seconds: float, tokens: Sequence[int]) -> list[float]:
    """``seconds`` (on the grid) in proportion to ``tokens``: on the grid, and their sum is exact."""
    if not tokens:
        return []
    weights = tokens if sum(tokens) else [1] * len(tokens)
    ticks, total, done, given = round(seconds / GRID), sum(weights), 0, 0
    parts = []
    for weight in weights:
        done += weight
        upto = ticks * done // total
        parts.append((upto - given) * GRID)
        given = upto
    return parts


def cost_of(logs: Sequence[EngineLog], programs: int, solved: int, took: float, kind: str) -> dict[str, Any]:
    """Plain data for the summary; ``took``: seconds that the run lasted, ``kind``: gpu, cpu or unknown."""
    if not logs:
        return {"unit": "", "note": "engines without a scheduler of ours say nothing of their steps"}
    by_program, nobody = seconds_of(logs)
    busy = math.fsum([*by_program.values(), nobody])
    return {
        "unit": NAMES.get(kind, NAMES["cpu"]),
        "counted": "busy time of the engines, each step shared by the tokens it computed of each call",
        "busy_s": busy,
        "nobody_s": nobody,
        "held_s": len(logs) * took,
        "per_program": busy / programs if programs else math.nan,
        "per_solved": busy / solved if solved else math.nan,
        "by_program": {str(program): by_program[program] for program in sorted(by_program)},
    }
