"""Experiments as data: a TOML file in ``bench/experiments/`` says what runs and what is claimed.

Its ``kind`` says what runs it: ``schedule`` (bench.schedules), ``curves`` (bench.curves) or ``loop``
(bench.loops).
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from bench.errors import UsageError, unknown

FOLDER = Path(__file__).parent / "experiments"
KINDS = ("schedule", "curves", "loop")


def experiments() -> dict[str, Path]:
    """``paper:figure`` -> its file."""
    return {f"{p.parent.name}:{p.stem}": p for p in sorted(FOLDER.glob("*/*.toml"))}


def load(name: str) -> tuple[dict[str, Any], Path]:
    """The experiment's data and file. Raises UsageError."""
    found = experiments()
    if name not in found:
        raise unknown("experiment", name, found)
    path = found[name]
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    if data.get("kind") not in KINDS:
        kinds = ", ".join(sorted(KINDS))
        raise UsageError(f"{path}: kind: {data.get('kind', 'missing')!r}; there are {kinds}")
    return data, path
