"""The HTML report: one file that opens anywhere, offline, without scripts.

Everything is in it: pictures as data URIs (SVG, so they print sharp), their tables as CSV
links. Whatever text comes in is escaped.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports import theme
from reports.figure import UNMARKED, Picture
from reports.numbers import MISSING, bare, bounded, number

TEMPLATE = Path(__file__).with_name("page.html.j2")
VERDICT_WORDS = ("reproduced", "same sign", "partly", "not reproduced", "not testable here", "exploratory")
CLAIM_COLUMNS = ("id", "source", "workload", "model", "statement", "expected", "got", "seeds", "transient",
                 "sustained", "verdict", "survives", "note")  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; ``numeric`` columns are set flush right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    numeric: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Section:
    """A part of the page. ``text``: paragraphs parted by blank lines; lines starting ``* `` are a list."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


def render(title: str, summary: str, sections: Sequence[Section], provenance: Mapping[str, Any]) -> str:
    """The page. ``summary``: paragraphs under the title. ``provenance``: words to values; a list of
    mappings becomes a table, other lists lines, mappings name and value; ``badge`` heads the page."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    badge = str(provenance.get("badge") or UNMARKED)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return page.render(
        title=title,
        summary=blocks(summary),
        badge=badge,
        simulated=badge.startswith(theme.SIMULATED),
        sections=[(slug(s.title, i), s, blocks(s.text)) for i, s in enumerate(sections)],
        provenance=[(str(k), _described(v)) for k, v in provenance.items() if k != "badge"],
        svg=lambda p: f"data:image/svg+xml;base64,{base64.b64encode(p.svg).decode()}",
        csv=lambda p: f"data:text/csv;charset=utf-8;base64,{base64.b64encode(p.csv.encode()).decode()}",
        tone=tone,
    )


def slug(title: str, place: int) -> str:
    """A section's anchor: unique and only letters, digits and dashes."""
    return f"s{place}-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def tone(text: str) -> str:
    """A class for cells that hold a verdict; empty for others."""
    word, few = bare(text)
    if word not in VERDICT_WORDS:
        return ""
    return f"verdict {'exploratory' if few else word.replace(' ', '-')}"


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Paragraphs ("p", [text]) and lists ("ul", items) of plain text."""
    found: list[tuple[str, list[str]]] = []
    for part in re.split(r"\n\s*\n", text.strip()):
        prose: list[str] = []
        for line in filter(None, (line.strip() for line in part.splitlines())):
            if not line.startswith("* "):
                prose.append(line)
                continue
            found += [("p", [" ".join(prose)])] if prose else []
            prose = []
            if not found or found[-1][0] != "ul":
                found.append(("ul", []))
            found[-1][1].append(line[2:])
        found += [("p", [" ".join(prose)])] if prose else []
    return found


def _described(value: Any) -> tuple[str, Any]:
    if isinstance(value, pd.DataFrame):
        return "table", table_of(value)
    if isinstance(value, Mapping):
        return "pairs", [(str(k), text(v)) for k, v in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(v, Mapping) for v in value):
            return "table", table_of(pd.DataFrame(list(value)))
        return "lines", [text(v) for v in value]
    return "text", text(value)


def table_of(frame: pd.DataFrame, caption: str = "") -> Table:
    """A frame as text: numbers to three digits, nothing as a dash."""
    numeric = frozenset(str(c) for c in frame if pd.api.types.is_numeric_dtype(frame[c]))
    rows = [[text(v) for v in row] for row in frame.itertuples(index=False)]
    return Table([str(c) for c in frame], rows, caption, numeric)


def text(value: Any) -> str:
    """One value as a cell."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if hasattr(value, "item"):
        return text(value.item())
    if isinstance(value, float):
        return ("inf" if value > 0 else "-inf") if math.isinf(value) else number(value)
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(text(v) for v in value)
    return str(value)


def verdicts(claims: pd.DataFrame) -> Section:
    """The table of claims: what is stated, what was got with its interval, both verdicts."""
    rows = claims.assign(got=[_got(row) for row in claims.to_dict("records")])
    shown = rows[[c for c in CLAIM_COLUMNS if c in rows]]
    return Section("Verdicts", _tally(claims), [table_of(shown)])


def _got(row: Mapping[str, Any]) -> str:
    value, low, high = (row.get(name) for name in ("got", "low", "high"))
    return bounded(value, low, high) if isinstance(value, float | int) else text(value)


def _tally(claims: pd.DataFrame) -> str:
    lines = []
    for kind in ("transient", "sustained", "verdict"):
        if kind in claims:
            counts = _counts(claims[kind])
            lines.append(f"* {kind}: {counts}")
    return "\n".join(lines)


def _counts(words: Iterable[Any]) -> str:
    found: dict[str, int] = {}
    for word in words:
        found[text(word)] = found.get(text(word), 0) + 1
    place = {word: i for i, word in enumerate(VERDICT_WORDS)}
    return ", ".join(f"{found[w]} {w}" for w in sorted(found, key=lambda w: (place.get(w, 9), w)))
