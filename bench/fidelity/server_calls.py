"""Calls as the scheduler saw them, measured or simulated, and the numbers that are compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.errors import InvalidRun
from bench.records import MemorySink
from vocabulary import INF, Finished

_NAMED = re.compile(r"(?:(?:chat)?cmpl[-_]|resp_)?([^.-]*)\.([^.-]*)\.([^.]*)\.(\d+)(?:-.*)?")
"""RUN.PROGRAM.THREAD.INDEX behind what an API puts before it, before what is added behind; a thread's name
may have hyphens."""


class Call(NamedTuple):
    """One finished call; times in seconds on the engine's clock, tokens."""

    program: int
    thread: str
    number: int
    t_arrive: float
    t_first_token: float
    t_end: float
    output_tokens: int
    wait_s: float
    exec_s: float
    preemptions: int
    cached_tokens: int

    @property
    def key(self) -> str:
        """PROGRAM.THREAD.INDEX, as the live driver names calls."""
        return f"{self.program}.{self.thread.replace('.', '_')}.{self.number}"


class Numbers(NamedTuple):
    """Of one run. ``tpot``: mean over calls of two tokens and more of the time from the first token to the
    end, per token after the first; ``ttft``, ``wait``: means over calls, from arrival; ``program``: mean
    over programs from the first call's arrival to the last one's end. Seconds, scheduler side."""

    tpot: float
    ttft: float
    wait: float
    program: float
    calls: int
    programs: int
    preempted: int
    cached_tokens: int


def numbers(calls: Sequence[Call]) -> Numbers:
    """The numbers of a run's calls (at least one)."""
    gaps = [(c.t_end - c.t_first_token) / (c.output_tokens - 1) for c in calls if c.output_tokens > 1]
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    for c in calls:
        begins[c.program] = min(begins.get(c.program, INF), c.t_arrive)
        ends[c.program] = max(ends.get(c.program, -INF), c.t_end)
    return Numbers(
        tpot=float(np.mean(gaps)) if gaps else math.nan,
        ttft=float(np.mean([c.t_first_token - c.t_arrive for c in calls])),
        wait=float(np.mean([c.wait_s for c in calls])),
        program=float(np.mean([ends[p] - begins[p] for p in begins])),
        calls=len(calls),
        programs=len(begins),
        preempted=sum(c.preemptions > 0 for c in calls),
        cached_tokens=sum(c.cached_tokens for c in calls),
    )


def medians(several: Iterable[Numbers]) -> Numbers:
    """Number by number, over several runs."""
    return Numbers._make(float(np.median(column)) for column in zip(*several, strict=True))


def simulated(sink: MemorySink) -> list[Call]:
    """The calls of a simulated run."""
    return [_call(row, row.call.program, row.call.thread, row.call.index) for row in sink.calls]


def _call(row: Finished, program: int, thread: str, index: int) -> Call:
    exec_s = row.prefill_s + row.reprefill_s + row.decode_s
    return Call(
        program, thread, index, row.t_arrive, row.t_first_token, row.t_end, row.output_tokens,
        row.wait_s, exec_s, row.preemptions, row.cached_tokens,
    )  # fmt: skip


def logged(path: Path, run: str) -> list[Call]:
    """The calls of one run of the live driver, from the scheduler's call log. Raises InvalidRun for an
    aborted one, OSError."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        name = request_name(row["request_id"])
        if name[0] != run:
            continue
        if row["aborted"] or row["t_first_token"] is None:
            raise InvalidRun(f"{path}: call {'.'.join(name)} was aborted")
        exec_s = row["prefill_s"] + row["reprefill_s"] + row["decode_s"]
        found.append(
            Call(
                int(name[1]), name[2], int(name[3]), row["t_arrive"], row["t_first_token"], row["t_end"],
                row["output_tokens"], row["wait_s"], exec_s, row["preemptions"], row["cached_tokens"],
            )
        )  # fmt: skip
    return found


def request_name(request_id: str) -> tuple[str, str, str, str]:
    """(run, program, thread, index) of the live driver's name in vLLM's request id; empty words if it is
    none of ours."""
    named = _NAMED.fullmatch(request_id)
    return ("", "", "", "") if named is None else (named[1], named[2], named[3], named[4])


def as_json(calls: Iterable[Call]) -> list[list[Any]]:
    """Plain data; ``from_json`` reads it."""
    return [list(call) for call in calls]


def from_json(rows: Iterable[Sequence[Any]]) -> list[Call]:
    """Calls from what ``as_json`` wrote."""
    return [Call._make(row) for row in rows]
