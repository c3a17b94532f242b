"""An experiment's outcome as Markdown: what docs/ keeps of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from reports.numbers import bounded, number

MOST_NOTE = 160


def markdown(
    title: str, command: str, claims: Sequence[Mapping[str, Any]], tables: Mapping[str, pd.DataFrame]
) -> str:
    """Verdicts first, then every table of the page."""
    parts = [f"### {title}", f"`{command}`"]
    if claims:
        parts.append(_table(CLAIMS, [_claim(claim) for claim in claims]))
    for name, frame in tables.items():
        if len(frame):
            rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
            parts.append(f"{name}\n\n{_table([str(c) for c in frame], rows)}")
    return "\n\n".join(parts) + "\n"


CLAIMS = ("claim", "stated", "here", "seeds", "verdict", "note")


def _claim(claim: Mapping[str, Any]) -> list[str]:
    note = str(claim["note"])
    short = note if len(note) <= MOST_NOTE else f"{note[: MOST_NOTE - 2].rstrip()} …"
    here = bounded(*(float(claim[name]) for name in ("got", "low", "high")))
    return [
        str(claim["statement"]),
        str(claim["expected"]),
        here,
        str(claim["seeds"]),
        claim["verdict"],
        short,
    ]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else number(value)
    return str(value)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)
