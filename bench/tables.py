"""The event log's tables: their columns, and how rows become columns.

``programs`` (ProgramRow), ``calls`` (vocabulary.Finished), ``decisions``
(vocabulary.Decision), ``engine`` (EngineSample) and ``totals`` (EngineTotals). Times in seconds, KV in
16-token blocks. The logical content of a table is its rows in the order they
were written; ``Digest`` hashes that content whatever the chunking or file
format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

FORMAT = 4
"""Version of tables and summary: part of a cell's address, raised when either changes."""

DTYPES = {"i4": "<i4", "i8": "<i8", "f8": "<f8", "b": "|b1"}

Columns = dict[str, Any]
"""Column name -> numpy array, or list of str for a text column."""


@dataclass(frozen=True)
class Table:
    """A table: (column, kind, attribute) with kind i4, i8, f8, b or s (text).

    ``inexact`` columns are no part of the result hash: engines that agree in all else
    may differ there by a rounding.
    """

    name: str
    fields: tuple[tuple[str, str, str], ...]
    inexact: frozenset[str] = frozenset()

    @property
    def kinds(self) -> dict[str, str]:
        """Column -> kind, in order."""
        return {column: kind for column, kind, _ in self.fields}

    def columns(self, rows: Sequence[Any]) -> Columns:
        """The rows as typed columns."""
        return {column: _column(rows, kind, attribute) for column, kind, attribute in self.fields}


def _column(rows: Sequence[Any], kind: str, attribute: str) -> Any:
    """One column: a numpy array, or a list of str for text.

    Column by column, straight from the objects: a row of 28 values as a tuple costs three times as much.
    """
    values = map(attrgetter(attribute), rows)
    if kind != "s":
        return np.fromiter(values, DTYPES[kind], len(rows))
    if attribute.endswith("parents"):
        return [parents_text(parents) for parents in values]
    return list(values)


def parents_text(parents: Sequence[tuple[str, int]]) -> str:
    """Parents of a call as text: ``thread#index`` joined by blanks."""
    if len(parents) == 1:
        return f"{parents[0][0]}#{parents[0][1]}"
    return " ".join(f"{thread}#{index}" for thread, index in parents)


def _same(kinds: str) -> tuple[tuple[str, str, str], ...]:
    """``name:kind`` words whose attribute has the column's name."""
    pairs = (word.split(":") for word in kinds.split())
    return tuple((name, kind, name) for name, kind in pairs)


PROGRAMS = Table(
    "programs",
    _same(
        "program:i4 kind:s t_arrive:f8 t_end:f8 outcome:s calls:i4 threads:i4 prompt_tokens:i8 "
        "output_tokens:i8 cached_tokens:i8 wait_s:f8 hold_s:f8 exec_s:f8 swap_s:f8 tool_s:f8 think_s:f8 "
        "preemptions:i4 cp_wait_s:f8 cp_prefill_s:f8 cp_reprefill_s:f8 cp_decode_s:f8 cp_swap_s:f8 "
        "cp_tool_s:f8 cp_think_s:f8 cp_overhead_s:f8"
    ),
)

CALLS = Table(
    "calls",
    (
        ("seq", "i8", "call.seq"),
        ("program", "i4", "call.program"),
        ("thread", "s", "call.thread"),
        ("index", "i4", "call.index"),
        ("parents", "s", "call.parents"),
        ("model", "s", "call.model"),
        ("prompt_tokens", "i4", "call.prompt_tokens"),
        *_same(
            "engine:i4 t_arrive:f8 t_first_sched:f8 t_first_token:f8 t_end:f8 output_tokens:i4 "
            "cached_tokens:i4 prefill_tokens:i4 reprefill_tokens:i8 prefill_s:f8 reprefill_s:f8 "
            "decode_s:f8 swap_s:f8 wait_s:f8 hold_s:f8 served:f8 steps:i4 preemptions:i4 demotions:i4 "
            "promotions:i4 level:i4 aborted:b"
        ),
    ),
)

DECISIONS = Table("decisions", _same("time:f8 engine:i4 call:i8 rule:s level:i4 value:f8"))

ENGINE = Table("engine", _same("time:f8 engine:i4 running:i4 waiting:i4 kv_used:i4 kv_cached:i4"))

TOTALS = Table(
    "totals",
    _same(
        "engine:i4 steps:i8 busy_s:f8 hit_tokens:i8 query_tokens:i8 computed_prefill_tokens:i8 "
        "decode_tokens:i8 preemptions:i8 displaced:i8 evicted:i8 evicted_blocks:i8 calls_finished:i8 "
        "calls_aborted:i8 swap_s:f8 swap_out_blocks:i8 swap_in_blocks:i8 swap_outs:i8 swap_full:i8 "
        "host_hit_tokens:i8 host_in_blocks:i8 host_dropped_blocks:i8 kv_block_seconds:f8"
    ),
    inexact=frozenset({"kv_block_seconds"}),
)

TABLES = {table.name: table for table in (PROGRAMS, CALLS, DECISIONS, ENGINE, TOTALS)}


class Digest:
    """sha256 of a table's rows in order, one hash per column.

    Independent of how the rows are cut into chunks and of the file format.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows = 0
        self._kinds = {c: k for c, k in table.kinds.items() if c not in table.inexact}
        self._hashes = {column: hashlib.sha256() for column in self._kinds}

    def update(self, columns: Columns) -> None:
        """Add a chunk of rows."""
        self.rows += len(next(iter(columns.values())))
        for name, kind in self._kinds.items():
            self._hashes[name].update(_bytes(columns[name], kind))

    def hexdigest(self) -> str:
        """Over the table's name, row count, and each column's name, kind and hash."""
        parts = [f"{FORMAT} {self.table.name} {self.rows}"]
        parts += [f"{c}:{k}:{self._hashes[c].hexdigest()}" for c, k in self._kinds.items()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _bytes(values: Any, kind: str) -> bytes:
    if kind != "s":
        return np.ascontiguousarray(values, dtype=DTYPES[kind]).tobytes()
    framed = {v: _framed(v) for v in set(values)}
    return b"".join(map(framed.__getitem__, values))


def _framed(text: str) -> bytes:
    """Length first: where one text ends and the next begins is part of the content."""
    data = text.encode()
    return b"%d:%s" % (len(data), data)


def result_hash(digests: dict[str, Digest]) -> str:
    """One hash for the tables of a run."""
    lines = [f"{name} {digests[name].hexdigest()}" for name in TABLES]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
