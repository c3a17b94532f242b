"""Azure's CSV of LLM requests: when, how long, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from vocabulary import on_grid
from workloads.files import Tally
from workloads.writing import (
    OWN_PREFIX,
    PROGRAM,
    SHARED,
    Dags,
    Owners,
    first_arrivals,
    grown,
    in_line,
    place,
)

EPOCH = datetime(2023, 11, 16, 18, 0, 0)
"""Arrival 0; the public file's own begins in this hour."""
TICKS = 10_000_000
ROUNDED_TIME = "arrival rounded to 100 ns"


class AzureWriter:
    """One line a call; the calls of a program follow each other at its arrival."""

    name = "azure"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Arrivals and lengths only."""
        owners = Owners()
        yield "TIMESTAMP,ContextTokens,GeneratedTokens"
        for dag, arrival in first_arrivals(dags, lost):
            where = place(dag)
            if owners.shared(dag):
                lost.add(SHARED, where)
            if on_grid(ticks(arrival) / TICKS) != arrival:
                lost.add(ROUNDED_TIME, where)
            turns = in_line(dag, lost)
            for i, (call, kept) in enumerate(grown([turn.call for turn in turns])):
                if i:
                    lost.add(PROGRAM, where)
                if kept:
                    lost.add(OWN_PREFIX, where)
                yield f"{stamp(arrival)},{call.prompt_tokens},{call.output_tokens}"


def stamp(seconds: float) -> str:
    """A time as the public file has it: seven digits of a second."""
    whole, rest = divmod(ticks(seconds), TICKS)
    return f"{EPOCH + timedelta(seconds=whole):%Y-%m-%d %H:%M:%S}.{rest:07d}"


def ticks(seconds: float) -> int:
    """In units of 100 ns."""
    return round(seconds * TICKS)


WRITER = AzureWriter()
