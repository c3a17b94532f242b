"""Rows of the event log and where a driver sends them.

Five tables: ``programs`` (ProgramRow), ``calls`` (vocabulary.Finished),
``decisions`` (vocabulary.Decision), ``engine`` (EngineSample) and ``totals``
(EngineTotals).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from vocabulary import INF, Decision, Finished


@dataclass(slots=True, eq=False)
class ProgramRow:
    """One program. Times in seconds.

    ``cp_*`` lie on the program's critical path as it really ran (at a join,
    the branch that ended last) and sum exactly: cp_wait_s + cp_prefill_s +
    cp_reprefill_s + cp_decode_s + cp_swap_s + cp_tool_s + cp_think_s +
    cp_overhead_s == t_end - t_arrive. The others sum over all calls; ``swap_s`` is
    the part of ``exec_s`` in which KV moved to or from host memory, ``hold_s`` that of
    ``wait_s`` in which a gate held the program at the door. A program ends when its last
    thread ends, spawned ones included. ``outcome``: finished, or abandoned (its client
    left); running until then.
    """

    program: int
    kind: str
    t_arrive: float
    t_end: float = INF
    outcome: str = "running"
    calls: int = 0
    threads: int = 1
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    wait_s: float = 0.0
    hold_s: float = 0.0
    exec_s: float = 0.0
    swap_s: float = 0.0
    tool_s: float = 0.0
    think_s: float = 0.0
    preemptions: int = 0
    cp_wait_s: float = 0.0
    cp_prefill_s: float = 0.0
    cp_reprefill_s: float = 0.0
    cp_decode_s: float = 0.0
    cp_swap_s: float = 0.0
    cp_tool_s: float = 0.0
    cp_think_s: float = 0.0
    cp_overhead_s: float = 0.0


class EngineSample(NamedTuple):
    """An engine's state at a moment; KV in blocks, levels as calls per level."""

    time: float
    engine: int
    running: int
    waiting: int
    kv_used: int
    kv_cached: int


_NO_HOST_MEMORY: dict[str, float] = dict.fromkeys(
    ("swap_s", "swap_out_blocks", "swap_in_blocks", "swap_outs", "swap_full",
     "host_hit_tokens", "host_in_blocks", "host_dropped_blocks"), 0,
)  # fmt: skip


class EngineTotals(NamedTuple):
    """What an engine did from start to end, as its ``stats`` say.

    Counts; tokens looked up in the prefix cache (``query_tokens``) and found there
    (``hit_tokens``) at calls' first admissions; seconds in steps; blocks in use times
    seconds (``kv_block_seconds``), approximate in ``sim`` (docs/engine.md, Totals). Those
    from ``swap_s`` to ``host_dropped_blocks`` are about host memory (docs/engine-options.md).
    """

    engine: int
    steps: int
    busy_s: float
    hit_tokens: int
    query_tokens: int
    computed_prefill_tokens: int
    decode_tokens: int
    preemptions: int
    displaced: int
    evicted: int
    evicted_blocks: int
    calls_finished: int
    calls_aborted: int
    swap_s: float
    swap_out_blocks: int
    swap_in_blocks: int
    swap_outs: int
    swap_full: int
    host_hit_tokens: int
    host_in_blocks: int
    host_dropped_blocks: int
    kv_block_seconds: float

    @classmethod
    def of(cls, engine: int, stats: Mapping[str, float]) -> EngineTotals:
        """From ``Engine.stats()``; KeyError if an engine does not say one of them.

        One without host memory (vLLM's) says nothing of it: those are 0.
        """
        said = {**_NO_HOST_MEMORY, **stats}
        return cls._make([engine, *(said[name] for name in cls._fields[1:])])


class Sink(Protocol):
    """Takes rows as they are produced; a driver never keeps them."""

    def program(self, row: ProgramRow) -> None:
        """A program that is over."""

    def call(self, row: Finished) -> None:
        """A finished or aborted call."""

    def decisions(self, rows: Sequence[Decision]) -> None:
        """Decisions, in the order in which they were made."""

    def sample(self, row: EngineSample) -> None:
        """An engine's state at a moment."""


class RunEnd(NamedTuple):
    """What a driver reports at the end: the clock and each engine's totals.

    ``said``: what else belongs into the summary; its ``metrics`` and ``warnings`` join those of the tables;
    ``unknown``: of which metrics (by the beginning of their names) the tables know nothing, and why.
    """

    time: float
    programs: int
    calls: int
    engines: list[dict[str, float]]
    said: Mapping[str, Any] = {}


class MemorySink:
    """Keeps every row in lists: for tests and small runs."""

    def __init__(self) -> None:
        self.programs: list[ProgramRow] = []
        self.calls: list[Finished] = []
        self.decided: list[Decision] = []
        self.samples: list[EngineSample] = []
        self.totals: list[EngineTotals] = []

    def program(self, row: ProgramRow) -> None:
        """Keep a program."""
        self.programs.append(row)

    def call(self, row: Finished) -> None:
        """Keep a call."""
        self.calls.append(row)

    def decisions(self, rows: Sequence[Decision]) -> None:
        """Keep decisions."""
        self.decided.extend(rows)

    def sample(self, row: EngineSample) -> None:
        """Keep a sample."""
        self.samples.append(row)
