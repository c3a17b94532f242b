"""The terminal page of an experiment over rates: a verdict per claim, and where the pictures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.card import compact, short
from reports.numbers import bare, bounded

SOURCES = {
    "paper": "Claims of the paper",
    "note": "Claims that only the reading note makes",
    "ours": "Our own: controls, predictions and what the issue asks",
}
MOST_CARDS = 2
_COLOURS = {"reproduced": "green", "same sign": "yellow", "partly": "yellow", "not reproduced": "red"}


def render(found: Mapping[str, Any]) -> RenderableType:
    """``found``: name, title, source, badge lines, claims (rows), counts, report and files."""
    head = Text.from_markup(f"[bold]{escape(found['name'])}[/]: {escape(found['title'])}")
    parts: list[RenderableType] = [head, Text(f"source: {found['source']}")]
    for source, title in SOURCES.items():
        rows = [claim for claim in found["claims"] if claim["source"] == source]
        if rows:
            parts += [Text(), Text(title, style="bold"), table(rows)]
    simulated = "SIMULATED. " if all(str(b).startswith("SIMULATED") for b in found["badge"]) else ""
    parts += [Text(), *cards(found)]
    parts += [
        Text(),
        Text(
            f"{simulated}{found['cells']:,} runs ({found['cells_there']:,} there before), "
            f"{found['programs']:,} programs, {found['calls']:,} calls, {found['computed_s']:.0f} s"
        ),
        Text(f"report      {found['report']}"),
        Text(f"repeat      {found['repeat']}"),
        *([Text(f"variations  {found['varied']}")] if found.get("varied") else []),
        *([Text(figures)] if (figures := _figures(found["files"])) else []),
    ]
    return Group(*parts)


def _figures(files: Sequence[Path]) -> str:
    return f"figures     {len(files) // 3} as PNG, SVG and CSV in {files[0].parent}" if files else ""


def cards(found: Mapping[str, Any]) -> list[RenderableType]:
    """The compact fidelity cards, MOST_CARDS at most, and whether the verdicts survive."""
    shown = found.get("cards", [])[:MOST_CARDS]
    parts: list[RenderableType] = [compact(short(card, None, "", "")[:3]) for card in shown]
    if (more := len(found.get("cards", [])) - len(shown)) > 0:
        parts.append(Text(f"{more} more cards of other set-ups: see the report"))
    return [*parts, Text(str(found.get("survives") or ""))]


def table(claims: list[Mapping[str, Any]]) -> Table:
    """Stated and got here with its interval, then the verdicts: one, or transient and sustained."""
    shown = Table(box=None, padding=(0, 1, 0, 0))
    varied = any("survives" in claim for claim in claims)
    verdicts = [name for name in ("transient", "sustained", "verdict") if any(name in c for c in claims)]
    for name in ("claim", "stated", "here", "seeds", *verdicts, *(["survives"] if varied else [])):
        shown.add_column(name, justify="right" if name in ("stated", "here", "seeds") else "left")
    for claim in claims:
        model = "" if claim["model"] == "llama-3.1-8b" else f" ({claim['model']})"
        here = bounded(*(float(claim[name]) for name in ("got", "low", "high")))
        shown.add_row(
            escape(claim["statement"] + model), escape(str(claim["expected"])), escape(here),
            str(claim["seeds"]), *(word(str(claim[name])) for name in verdicts),
            *([escape(str(claim.get("survives", "")))] if varied else []),
        )  # fmt: skip
    return shown


def word(verdict: str) -> Text:
    """A verdict in its colour; dim where few seeds stand behind it."""
    kind, few = bare(verdict)
    return Text(verdict, style="dim" if few else _COLOURS.get(kind, ""))
