"""Finished results on disk: finding, reading and verifying them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.errors import InvalidRun, UsageError
from bench.eventlog import stored_hash
from bench.run import finished


def cells(out: Path) -> list[Path]:
    """Folders of results, finished ones only, sorted by name."""
    if not out.is_dir():
        return []
    return sorted(p.parent for p in out.glob("*/summary.json"))


def find(result: str, out: Path) -> Path:
    """A result by its folder or by the first digits of its cell. Raises UsageError."""
    path = Path(result)
    if not result.strip():
        raise UsageError("give a folder of a result, or the first digits of its name (see bench ls results)")
    if path.is_dir():
        if not any((path / name).exists() for name in ("summary.json", "manifest.json")):
            raise UsageError(f"{result} is a folder, but not of a result: see bench ls results")
        return path
    known = cells(out)
    hits = [p for p in known if p.name.startswith(path.name)]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise UsageError(f"{result!r} could be {', '.join(p.name for p in hits)}: give more digits")
    raise UsageError(f"no result {result!r} in {out} ({len(known)} there, see bench ls results)")


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary of a finished result. Raises MissingError."""
    return finished(folder).summary


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a finished result. Raises MissingError."""
    finished(folder)
    data: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return data


def verify(folder: Path, summary: dict[str, Any]) -> None:
    """Raises InvalidRun if the tables are not the ones that were written."""
    try:
        found = stored_hash(folder)
    except KeyError as error:
        raise InvalidRun(f"{folder}: a table has other columns than were written: {error}") from None
    if found != summary["result_hash"]:
        raise InvalidRun(
            f"{folder}: the tables' hash is {found[:16]}..., the summary says "
            f"{summary['result_hash'][:16]}...: they were changed after the run; run it again with --force"
        )
