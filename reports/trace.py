"""What a workload looks like: counts, lengths, prefix sharing, and who LAS would favour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.numbers import counts, number, percent


def render(stats: Mapping[str, Any]) -> RenderableType:
    """The page of ``bench trace stats``; the data are described in ``bench.trace``."""
    parts: list[RenderableType] = [_head(stats), lengths(stats["distributions"]), _prefixes(stats["prefix"])]
    parts += [residual_life(table) for table in stats["residual_life"]]
    return Group(*parts)


def _head(stats: Mapping[str, Any]) -> Text:
    lines = [
        f"[bold]{escape(str(stats['name']))}[/]: {stats['programs']:,} programs, {stats['calls']:,} calls"
    ]
    lines += [f"{w}: {escape(counts(stats[w]))}" for w in ("skipped", "repaired") if stats.get(w)]
    return Text.from_markup("\n".join(lines))


def lengths(rows: Mapping[str, Mapping[str, float]]) -> Table:
    """Mean and percentiles of each quantity."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    names = ("n", "mean", "p50", "p90", "p99", "max")
    for name in names:
        table.add_column(name, justify="right")
    for label, row in rows.items():
        table.add_row(label, *(number(row.get(name)) for name in names))
    return table


def _prefixes(prefix: Mapping[str, float]) -> Text:
    return Text(
        f"prefix hits of an infinite cache: {percent(prefix['optimum'])} of prompt tokens "
        f"({number(prefix['hit_tokens'])} of {number(prefix['prompt_tokens'])})"
    )


def residual_life(table: Mapping[str, Any]) -> RenderableType:
    """Mean residual life: what is left, on average, of a program that got this far."""
    rows: Sequence[Mapping[str, float]] = table["rows"]
    caveat = f" ({table['caveat']})" if table.get("caveat") else ""
    title = f"mean residual life of a program's {table['quantity']}: {table['verdict']}{caveat}"
    grid = Table(box=None, pad_edge=False)
    for name in ("already received", "programs left", "mean left", "ends before next row"):
        grid.add_column(name, justify="right")
    for row in rows:
        grid.add_row(
            number(row["age"]), number(row["alive"]), number(row["mean_left"]), percent(row["hazard"])
        )
    return Group(Text(title, style="bold"), grid, Text(str(table["explanation"]), style="dim"))
