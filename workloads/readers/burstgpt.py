"""Reads BurstGPT traces (CSV), old files (without ``Session ID`` and ``Elapsed time``) and new ones.

Columns ``Timestamp`` (s), ``Request tokens``, ``Response tokens``, and if there are ``Session ID``,
``Elapsed time`` (s), ``Model``, ``Total tokens``, in any order; others are ignored.

* A call with 0 response tokens failed; it is left out and counted.
* The rows of a session are a program: the wait before a call is the time since the end
  of the call before (its timestamp and elapsed time). A row without a session is a program.
* The files say nothing about content. In a session, a prompt at least as long as the prompt and
  the reply before it is taken to continue them; nothing is shared between sessions.
"""

from __future__ import annotations

from pathlib import Path

from workloads.base import ProgramSet
from workloads.csv_rows import CsvRow, csv_rows, has_columns
from workloads.files import Tally, of_folder
from workloads.requests import NO_PROMPT, Requests, in_time_order, program_set
from workloads.rows import Table

FAILED = "failed call (0 response tokens) left out"
_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


class BurstGptReader:
    """A CSV file, or a folder of them."""

    name = "burstgpt"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like BurstGPT."""
        if any(_is_ours(file) for file, _ in of_folder(path, (".csv",), _is_ours, Tally())):
            return f"a CSV with the columns {', '.join(_COLUMNS)}"
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """Programs of one call, or of a session. Raises WorkloadError with file, line and column."""
        skipped, repaired = Tally(), Tally()
        tables, read = [], 0
        for number, (file, name) in enumerate(of_folder(path, (".csv",), _is_ours, skipped)):
            rows = _File(Requests(self.name, name, number), skipped, repaired)
            for row in csv_rows(file, name, _COLUMNS):
                read += 1
                rows.add(row)
            table = rows.table()
            table.fit(max_model_len, on_overflow, name, skipped, repaired)
            tables.append(table)
        return program_set(path, self.name, tables, skipped, repaired, read, max_model_len)


def _is_ours(path: Path) -> bool:
    return has_columns(path, _COLUMNS)


class _File:
    def __init__(self, rows: Requests, skipped: Tally, repaired: Tally) -> None:
        self.rows = rows
        self.skipped = skipped
        self.repaired = repaired
        self.sessions: dict[str, list[int]] = {}
        self.took: dict[int, float] = {}
        self.names: dict[str, str] = {}

    def add(self, row: CsvRow) -> None:
        tokens, output = row.tokens("Request tokens"), row.tokens("Response tokens")
        if not output:
            self.skipped.add(FAILED, row.where)
            return
        if row.has("Total tokens") and row.tokens("Total tokens") != tokens + output:
            raise row.wrong("Total tokens", f"{tokens} + {output} = {tokens + output}")
        if not tokens:
            self.skipped.add(NO_PROMPT, row.where)
            return
        place = len(self.rows.columns)
        self.rows.columns.add(row.line, row.number("Timestamp"), tokens, output, [])
        if row.has("Model"):
            model = row.text("Model")
            self.rows.models[place] = self.names.setdefault(model, model)
        if row.has("Session ID"):
            self.sessions.setdefault(row.text("Session ID"), []).append(place)
            if row.has("Elapsed time"):
                self.took[place] = row.number("Elapsed time")

    def table(self) -> Table:
        """The programs of what was read."""
        if not self.sessions:
            return self.rows.table()
        sessions = [in_time_order(rows, self.rows, self.repaired) for rows in self.sessions.values()]
        self.rows.chain(sessions)
        self.rows.pause({}, self.took, self.repaired)
        self.rows.count_continued(self.repaired)
        inside = {row for rows in sessions for row in rows}
        alone = [[row] for row in range(len(self.rows.columns)) if row not in inside]
        return self.rows.table(sorted([*sessions, *alone], key=min))


READER = BurstGptReader()
