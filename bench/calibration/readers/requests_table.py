"""Our own plain table of requests: a CSV with a header, or JSON objects by line.

Columns: ``arrival`` (s, any origin), ``input_tokens``, ``output_tokens``, and what was measured:
``ttft_s``, ``tpot_s``, ``e2e_s``, or ``first_token`` and ``last_token`` (s, on the clock of ``arrival``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.calibration.recordings import Facts, Recording, Request, digest_of, request
from bench.errors import UsageError
from workloads.csv_rows import csv_rows, has_columns
from workloads.files import first_line
from workloads.streams import lines, parse_line

NEEDED = ("arrival", "input_tokens", "output_tokens")
MEASURED = ("ttft_s", "tpot_s", "e2e_s", "first_token", "last_token")


class RequestsTable:
    """Reads one CSV or JSONL file."""

    name = "requests"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        if path.is_dir():
            return None
        if path.suffix == ".csv":
            return f"columns {', '.join(NEEDED)}" if has_columns(path, NEEDED) else None
        text = first_line(path)
        there = text.startswith(b"{") and all(f'"{name}"'.encode() in text for name in NEEDED)
        return f"objects with {', '.join(NEEDED)}" if there else None

    def read(self, path: Path) -> Recording:
        """Raises UsageError or WorkloadError with file, line and field."""
        rows = [_request(values, where) for values, where in _rows(path)]
        if not any(value is not None for r in rows for value in (r.ttft, r.tpot, r.e2e)):
            raise UsageError(f"{path}: nothing was measured: one of {', '.join(MEASURED)} must be there")
        rows.sort(key=lambda r: r.arrival or 0.0)
        return Recording(Facts(self.name, path, source={"sha256": digest_of(path)}), rows)


def _rows(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    if path.suffix == ".csv":
        names = (*NEEDED, *MEASURED)
        for row in csv_rows(path, path.name, NEEDED):
            yield {name: row.text(name) for name in names if row.has(name)}, row.where
        return
    for number, line in lines(path, path.name):
        values = parse_line(line, path.name, number)
        if not isinstance(values, dict):
            raise UsageError(f"{path.name}:{number}: expected an object")
        yield values, f"{path.name}:{number}"


def _request(values: Mapping[str, Any], where: str) -> Request:
    def number(name: str) -> float | None:
        value = values.get(name)
        if value in (None, ""):
            return None
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found) or (found <= 0.0 and name not in ("arrival", "first_token")):
            raise UsageError(f"{where}.{name}: expected a number above 0, got {value!r}")
        return found

    numbers = [number(name) for name in NEEDED]
    if None in numbers:
        raise UsageError(f"{where}: {', '.join(NEEDED)} must all be there")
    arrival, prompt, output = (value or 0.0 for value in numbers)
    made = request(arrival, int(prompt), int(output), number("first_token"), number("last_token"))
    ttft, tpot, e2e = (number(f"{name}_s") for name in ("ttft", "tpot", "e2e"))
    made = made._replace(
        ttft=made.ttft if ttft is None else ttft,
        tpot=made.tpot if tpot is None else tpot,
        e2e=made.e2e if e2e is None else e2e,
    )
    for name in ("ttft", "tpot", "e2e"):
        if (value := getattr(made, name)) is not None and value <= 0.0:
            raise UsageError(f"{where}: {name} comes out as {value:g} s: times must follow one another")
    return made


READER = RequestsTable()
