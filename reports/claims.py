"""The terminal page of an experiment over rates: a verdict per claim, and where the pictures are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

SOURCES = {"paper": "Claims of the paper", "note": "Claims that only the reading note makes"}
_COLOURS = {"reproduced": "green", "partly": "yellow", "not reproduced": "red"}


def render(found: Mapping[str, Any]) -> RenderableType:
    """``found``: name, title, source, badge lines, claims (rows), counts, report and files."""
    head = Text.from_markup(f"[bold]{escape(found['name'])}[/]: {escape(found['title'])}")
    parts: list[RenderableType] = [head, Text(f"source: {found['source']}")]
    for source, title in (
        ("paper", "Claims of the paper"),
        ("note", "Claims that only the reading note makes"),
    ):
        rows = [claim for claim in found["claims"] if claim["source"] == source]
        if rows:
            parts += [Text(), Text(title, style="bold"), table(rows)]
    simulated = "SIMULATED. " if all(str(b).startswith("SIMULATED") for b in found["badge"]) else ""
    parts += [
        Text(),
        Text(
            f"{simulated}{found['cells']:,} runs ({found['cells_there']:,} there before), "
            f"{found['programs']:,} programs, {found['calls']:,} calls, {found['computed_s']:.0f} s"
        ),
        Text(f"report      {found['report']}"),
        Text(f"figures     {len(found['files']) // 3} as PNG, SVG and CSV in {found['files'][0].parent}"),
    ]
    return Group(*parts)


def table(claims: list[Mapping[str, Any]]) -> Table:
    """Stated and got here with its interval, then the two verdicts."""
    shown = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("claim", "stated", "here", "seeds", "transient", "sustained"):
        shown.add_column(name, justify="right" if name in ("stated", "here", "seeds") else "left")
    for claim in claims:
        model = "" if claim["model"] == "llama-3.1-8b" else f" ({claim['model']})"
        shown.add_row(
            escape(claim["statement"] + model), escape(str(claim["expected"])), escape(got(claim)),
            str(claim["seeds"]), word(claim["transient"]), word(claim["sustained"]),
        )  # fmt: skip
    return shown


def got(claim: Mapping[str, Any]) -> str:
    """A value with its interval; a bound where one end is open."""
    value, low, high = (float(claim[k]) for k in ("got", "low", "high"))
    if math.isnan(value):
        return "-"
    if high == math.inf:
        return f"> {low:.3g}"
    if low == 0.0:
        return f"< {high:.3g}"
    return f"{value:.3g}" + ("" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]")


def word(verdict: str) -> Text:
    """A verdict in its colour."""
    kind = verdict.removeprefix("exploratory: ")
    return Text(verdict, style=_COLOURS.get(kind, "") if kind == verdict else "dim")
