"""CSV files with a header, row by row: columns by name, in any order, with any others beside them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from workloads.base import WorkloadError
from workloads.files import brief, first_line
from workloads.rows import MOST_TOKENS
from workloads.streams import lines


def header_of(path: Path) -> list[str]:
    """The names in the first line; empty if that is no text."""
    try:
        return next(csv.reader([first_line(path).decode()]), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def has_columns(path: Path, wanted: Sequence[str]) -> bool:
    """Whether the first line names all of these."""
    return set(wanted) <= {name.strip() for name in header_of(path)}


class CsvRow:
    """One row; ``where`` is its file and line."""

    __slots__ = ("_cells", "_columns", "_name", "line")

    def __init__(self, name: str, line: int, columns: dict[str, int], cells: list[str]) -> None:
        self._name = name
        self.line = line
        self._columns = columns
        self._cells = cells

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self._name}:{self.line}"

    def has(self, column: str) -> bool:
        """Is there something in this column?"""
        return column in self._columns and bool(self.text(column))

    def text(self, column: str) -> str:
        """The cell, without space around it."""
        return self._cells[self._columns[column]].strip()

    def tokens(self, column: str) -> int:
        """A whole number of tokens; 12.0 is one, too."""
        text = self.text(column)
        if text.isascii() and text.isdigit() and len(text) <= 10 and (value := int(text)) <= MOST_TOKENS:
            return value
        number = self.number(column, MOST_TOKENS)
        if not number.is_integer():
            raise self.wrong(column, "a whole number")
        return int(number)

    def number(self, column: str, high: float = 2.0**53) -> float:
        """A number from 0 to ``high``."""
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.wrong(column, "a number") from None
        if not 0 <= value <= high:
            raise self.wrong(column, f"a number from 0 to {high:.0f}")
        return value

    def wrong(self, column: str, expected: str) -> WorkloadError:
        """The error for a cell."""
        return WorkloadError(f"{self.where}.{column}: expected {expected}, got {brief(self.text(column))}")


def csv_rows(path: Path, name: str, wanted: Sequence[str]) -> Iterator[CsvRow]:
    """The rows below the header, which must name ``wanted``. Raises WorkloadError with file and line."""
    at = 0

    def text() -> Iterator[str]:
        nonlocal at
        for at, line in lines(path, name):
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise WorkloadError(f"{name}:{at}: not UTF-8 text (byte {error.start})") from error

    columns: dict[str, int] | None = None
    width = 0
    try:
        for cells in csv.reader(text(), strict=True):
            if columns is None:
                columns, width = _columns(cells, name, wanted), len(cells)
                continue
            if len(cells) != width:
                raise WorkloadError(
                    f"{name}:{at}: expected {width} columns as in the header, got {len(cells)}"
                )
            yield CsvRow(name, at, columns, cells)
    except csv.Error as error:
        raise WorkloadError(f"{name}:{at}: broken CSV ({error})") from error
    if columns is None:
        raise WorkloadError(f"{name}: empty; the first line must name the columns {', '.join(wanted)}")


def _columns(cells: list[str], name: str, wanted: Sequence[str]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for i, cell in enumerate(cells):
        if columns.setdefault(cell.strip(), i) != i:
            raise WorkloadError(f"{name}:1: two columns are named {brief(cell.strip())}")
    missing = [column for column in wanted if column not in columns]
    if missing:
        raise WorkloadError(
            f"{name}:1: the first line must name the columns {', '.join(wanted)}; "
            f"{', '.join(missing)} missing (a file without a header?)"
        )
    return columns
