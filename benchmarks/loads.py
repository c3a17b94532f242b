"""Loads of the benchmarks as files that two simulators read: Mooncake's JSON lines, one row a call.

A row has the tokens that are *new* in the call (``input_length``) under ``hash_ids`` of 512
tokens each; the prompt is all that its session had so far, replies included, and then those.
The first row of a session has a ``timestamp`` (ms), later ones a ``delay`` (ms) after the reply
before. NVIDIA Dynamo calls this format ``mooncake-delta``. Times are multiples of 2**-20 s,
which are exact in both simulators' units.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from workloads.base import ProgramSpec
from workloads.keys import key_of
from workloads.session import Session

BLOCK_TOKENS = 512
"""Tokens of a hash id."""
_TICKS = 2**20

Plan = Sequence[tuple[int, int, float]]
"""Per call: new tokens, output tokens, tool seconds after it."""


class Turn(NamedTuple):
    """One call: the segments that are new in it, its reply's tokens, seconds after the reply before."""

    new: list[tuple[int, int]]
    output: int
    delay_s: float


class Load(NamedTuple):
    """Programs as a file has them: when each arrives (s), and its calls."""

    times: list[float]
    programs: list[list[Turn]]

    def specs(self) -> list[ProgramSpec]:
        """The programs, for a driver."""
        return [
            ProgramSpec(i, "load", key_of("load", i), partial(_program, turns))
            for i, turns in enumerate(self.programs)
        ]

    def output_tokens(self) -> list[float]:
        """Per program, for clairvoyant schedulers."""
        return [float(sum(turn.output for turn in turns)) for turns in self.programs]


async def _program(turns: Sequence[Turn], session: Session) -> None:
    for number, (new, output, delay_s) in enumerate(turns):
        if number:
            await session.tool("tool", delay_s)
        await session.call(new, output=output)


def read(path: Path) -> Load:
    """The load of a file that ``write_plans`` or ``cut_mooncake`` wrote."""
    times: list[float] = []
    sessions: dict[str, list[Turn]] = {}
    for line in path.read_text().splitlines():
        row: dict[str, Any] = json.loads(line)
        turns = sessions.get(row["session_id"])
        if turns is None:
            turns = sessions[row["session_id"]] = []
            times.append(row["timestamp"] / 1e3)
        new = _segments(row["hash_ids"], row["input_length"])
        turns.append(Turn(new, row["output_length"], row.get("delay", 0.0) / 1e3))
    return Load(times, list(sessions.values()))


def _segments(ids: Iterable[int], tokens: int) -> list[tuple[int, int]]:
    return [(name, min(BLOCK_TOKENS, tokens - i * BLOCK_TOKENS)) for i, name in enumerate(ids)]


def write_plans(path: Path, plans: Sequence[Plan], times: Sequence[float]) -> None:
    """Programs of calls with tools between them; all their text is their own."""
    ids = count(1)
    rows = (
        row
        for index, (plan, time) in enumerate(zip(plans, times, strict=True))
        for row in _rows_of(str(index), plan, time, ids)
    )
    _write(path, rows)


def _rows_of(name: str, plan: Plan, time: float, ids: Iterator[int]) -> Iterator[dict[str, Any]]:
    before = 0.0
    for number, (new, output, tool_s) in enumerate(plan):
        blocks = [next(ids) for _ in range(-(-new // BLOCK_TOKENS))]
        row: dict[str, Any] = {"session_id": name, "input_length": new, "output_length": output}
        when = {"delay": _ms(before)} if number else {"timestamp": _ms(time)}
        yield row | {"hash_ids": blocks} | when
        before = tool_s


def cut_mooncake(trace: Path, path: Path, rows: int) -> None:
    """The first ``rows`` requests of a Mooncake trace, each a session of one call.

    Raises ValueError if a row's ids do not fit its length.
    """
    found = []
    with trace.open() as lines:
        for number, line in zip(range(rows), lines, strict=False):
            row = json.loads(line)
            if len(row["hash_ids"]) != -(-row["input_length"] // BLOCK_TOKENS):
                raise ValueError(f"{trace.name}:{number + 1}: hash_ids do not fit input_length")
            found.append(row | {"session_id": str(number), "timestamp": _ms(row["timestamp"] / 1e3)})
    _write(path, found)


def _ms(seconds: float) -> float:
    return round(seconds * _TICKS) * 1e3 / _TICKS


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
