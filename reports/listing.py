"""A list of things with the same fields, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.numbers import number


def render(title: str, rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One row per thing, one column per field of the first."""
    if not rows:
        return Text.from_markup(f"[bold]{escape(title)}[/]: none")
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, overflow="fold", no_wrap=name in ("name", "cell"))
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return Group(Text(title, style="bold"), table)


def _cell(value: object) -> str:
    return number(value) if isinstance(value, float) else escape(str(value))
