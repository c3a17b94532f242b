"""The event log of one run: five Parquet tables, written as the rows come.

A run folder holds ``manifest.json`` (first), ``<table>.parquet`` and
``summary.json`` (last). Each appears whole or not at all; a folder without a
summary is an unfinished run and is written again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.errors import MissingError
from bench.records import EngineSample, EngineTotals, MemorySink, ProgramRow
from bench.tables import (
    CALLS,
    DECISIONS,
    ENGINE,
    PROGRAMS,
    TABLES,
    TOTALS,
    Columns,
    Digest,
    Table,
    result_hash,
)
from vocabulary import Decision, Finished

ROW_GROUP = 20_000
"""Rows held in memory per table before they go to disk."""

_ARROW = {"i4": pa.int32(), "i8": pa.int64(), "f8": pa.float64(), "b": pa.bool_(), "s": pa.string()}


def schema(table: Table) -> Any:
    """The table's Arrow schema; no column is nullable."""
    return pa.schema([pa.field(c, _ARROW[k], nullable=False) for c, k in table.kinds.items()])


class TableWriter:
    """Streams one table to ``<table>.parquet.part``; ``close`` gives it its name."""

    def __init__(self, folder: Path, table: Table) -> None:
        self.table = table
        self.path = folder / f"{table.name}.parquet"
        self.digest = Digest(table)
        self.rows: list[Any] = []
        self._part = folder / f"{table.name}.parquet.part"
        self._schema = schema(table)
        text = [c for c, k in table.kinds.items() if k == "s"]
        self._file = pq.ParquetWriter(
            str(self._part), self._schema, compression="zstd", use_dictionary=text or False
        )

    def take(self, row: Any) -> None:
        """Keep a row; write the rows held back when they are ROW_GROUP."""
        self.rows.append(row)
        if len(self.rows) >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the rows held back as one row group."""
        if not self.rows:
            return
        columns = self.table.columns(self.rows)
        self.rows.clear()
        self.digest.update(columns)
        arrays = [pa.array(columns[f.name], type=f.type) for f in self._schema]
        self._file.write_batch(pa.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the rest; the file is on disk under its final name."""
        self.flush()
        self._file.close()
        with self._part.open("rb") as file:
            os.fsync(file.fileno())
        self._part.replace(self.path)

    def abort(self) -> None:
        """Drop what was written."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._file.close()
        self._part.unlink(missing_ok=True)


class EventLog:
    """A Sink that writes to ``folder``. Memory is bounded by ROW_GROUP rows per table.

    Raises OSError when the disk is full; the parts are then removed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writers = {name: TableWriter(folder, table) for name, table in TABLES.items()}
        self._programs, self._calls, self._decisions, self._samples, self._totals = self.writers.values()

    def program(self, row: ProgramRow) -> None:
        """Take a program that is over."""
        self._programs.take(row)

    def call(self, row: Finished) -> None:
        """Take a finished or aborted call."""
        rows = self._calls.rows  # take, inlined: one a call
        rows.append(row)
        if len(rows) >= ROW_GROUP:
            self._calls.flush()

    def sample(self, row: EngineSample) -> None:
        """Take an engine's state at a moment."""
        self._samples.take(row)

    def decisions(self, rows: Sequence[Decision]) -> None:
        """Take decisions in the order they were made."""
        self._decisions.rows.extend(rows)
        if len(self._decisions.rows) >= ROW_GROUP:
            self._decisions.flush()

    def total(self, row: EngineTotals) -> None:
        """Take what an engine did in all, once the run is over."""
        self._totals.take(row)

    def finish(self) -> str:
        """Give all tables their names; returns the result hash."""
        for writer in self.writers.values():
            writer.close()
        return result_hash({name: w.digest for name, w in self.writers.items()})

    def abort(self) -> None:
        """Remove the parts of an interrupted run."""
        for writer in self.writers.values():
            writer.abort()


@dataclass(frozen=True)
class Tables:
    """The event log as pandas frames, columns as in bench.tables."""

    programs: pd.DataFrame
    calls: pd.DataFrame
    decisions: pd.DataFrame
    engine: pd.DataFrame
    totals: pd.DataFrame


def from_memory(sink: MemorySink) -> Tables:
    """The tables of rows that were kept in memory."""

    def frame(table: Table, rows: Sequence[Any]) -> pd.DataFrame:
        return pd.DataFrame(table.columns(rows))

    return Tables(
        frame(PROGRAMS, sink.programs),
        frame(CALLS, sink.calls),
        frame(DECISIONS, sink.decided),
        frame(ENGINE, sink.samples),
        frame(TOTALS, sink.totals),
    )


_METRIC_CALLS = [c for c in CALLS.kinds if c != "model"]
POLICIES = ("gate:", "keep:", "env:")
"""How the rules of decisions begin that gates, retention and environments made: ``call`` is a program."""


def read_tables(folder: Path) -> Tables:
    """What the metrics need, from disk: calls without their models, of decisions those of POLICIES."""
    return Tables(
        _frame(folder, "programs", None),
        _frame(folder, "calls", _METRIC_CALLS),
        _policy_decisions(folder),
        _frame(folder, "engine", None),
        _frame(folder, "totals", None),
    )


def _policy_decisions(folder: Path) -> pd.DataFrame:
    """One row group at a time: of most logs nothing is kept."""
    with _open(folder, "decisions") as file:
        kept = [file.schema_arrow.empty_table()]
        for group in range(file.num_row_groups):
            rules = file.read_row_group(group, columns=["rule"]).column("rule")
            wanted = [rule for rule in pc.unique(rules).to_pylist() if rule.startswith(POLICIES)]
            if wanted:
                kept.append(file.read_row_group(group).filter(pc.is_in(rules, pa.array(wanted))))
    return pa.concat_tables(kept).to_pandas()


def _frame(folder: Path, name: str, columns: list[str] | None) -> pd.DataFrame:
    text = [c for c, k in TABLES[name].kinds.items() if k == "s"]
    table = _open(folder, name, text).read(columns=columns)
    return table.to_pandas(self_destruct=True, split_blocks=True)


def _open(folder: Path, name: str, dictionary: list[str] | None = None) -> Any:
    path = folder / f"{name}.parquet"
    try:
        return pq.ParquetFile(path, read_dictionary=dictionary)
    except (OSError, pa.ArrowException) as error:
        raise MissingError(f"cannot read {path}: {error}; run it again with --force") from None


def stored_hash(folder: Path) -> str:
    """The result hash of the tables on disk, read one row group at a time."""
    digests = {name: Digest(table) for name, table in TABLES.items()}
    for name, digest in digests.items():
        with _open(folder, name) as file:
            for batch in file.iter_batches(batch_size=ROW_GROUP):
                digest.update(_columns(batch, digest.table))
    return result_hash(digests)


def _columns(batch: Any, table: Table) -> Columns:
    arrays = {c: batch.column(c) for c in table.kinds}
    return {
        c: arrays[c].to_pylist() if k == "s" else np.asarray(arrays[c].to_numpy(zero_copy_only=False))
        for c, k in table.kinds.items()
    }
