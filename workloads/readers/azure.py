"""Reads Azure's LLM inference traces (CSV, 2023 and 2024): when, and how long.

Columns ``TIMESTAMP`` (up to nine fractional digits, of which the public files have seven),
``ContextTokens`` and ``GeneratedTokens``, in any order. Every row is a program of one call
that shares nothing: the files say nothing about content.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from workloads.base import ProgramSet
from workloads.csv_rows import CsvRow, csv_rows, has_columns
from workloads.files import Tally, of_folder
from workloads.requests import NO_PROMPT, NO_TOKENS, Requests, program_set

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")


class AzureReader:
    """A CSV file, or a folder of them."""

    name = "azure"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like Azure's trace."""
        if any(_is_ours(file) for file, _ in of_folder(path, (".csv",), _is_ours, Tally())):
            return f"a CSV with the columns {', '.join(_COLUMNS)}"
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """Programs of one call. Raises WorkloadError with file, line and column."""
        skipped, repaired = Tally(), Tally()
        tables, read, clock = [], 0, _Clock()
        for number, (file, name) in enumerate(of_folder(path, (".csv",), _is_ours, skipped)):
            rows = Requests(self.name, name, number)
            for row in csv_rows(file, name, _COLUMNS):
                read += 1
                tokens, output = row.tokens("ContextTokens"), row.tokens("GeneratedTokens")
                if not tokens:
                    skipped.add(NO_PROMPT, row.where)
                    continue
                if not output:
                    repaired.add(NO_TOKENS, row.where)
                rows.columns.add(row.line, clock.seconds(row), tokens, max(1, output), [])
            table = rows.table()
            table.fit(max_model_len, on_overflow, name, skipped, repaired)
            tables.append(table)
        return program_set(path, self.name, tables, skipped, repaired, read, max_model_len)


def _is_ours(path: Path) -> bool:
    return has_columns(path, _COLUMNS)


class _Clock:
    """Seconds since the first whole second asked for: a double holds their 100 ns, too."""

    def __init__(self) -> None:
        self.start: int | None = None

    def seconds(self, row: CsvRow) -> float:
        """The time of a row."""
        match = _TIME.fullmatch(row.text("TIMESTAMP"))
        whole = _second(match[1], match[3] or "Z") if match else None
        if match is None or whole is None:
            raise row.wrong("TIMESTAMP", "a time like 2023-11-16 18:15:46.6805900")
        self.start = whole if self.start is None else self.start
        digits = str(match[2] or "0")
        return whole - self.start + float(f"0.{digits}")


@lru_cache(maxsize=64)
def _second(text: str, zone: str) -> int | None:
    """Whole seconds; None for a time that there is not."""
    try:
        time = datetime.fromisoformat(text + zone)
    except ValueError:
        return None
    return round((time - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds())


READER = AzureReader()
