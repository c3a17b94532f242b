"""A schedule, step by step: which programs shared each step of a small example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.card import compact, rows

_COLOURS = {"reproduced": "green", "differs": "yellow", "not reproduced": "red"}


def render(report: Mapping[str, Any]) -> RenderableType:
    """The page of a schedule experiment: programs, schedules, verdict per claim."""
    parts: list[RenderableType] = [
        Text.from_markup(f"[bold]{escape(report['name'])}[/]: {escape(report['title'])}"),
        Text(f"source: {report['source']}"),
        Text("programs (steps per call): " + ", ".join(f"{k} {v}" for k, v in report["programs"].items())),
        steps(report["schedules"]),
        waits(report["schedules"]),
    ]
    parts += [_claim(claim) for claim in report["claims"]]
    if report.get("card"):
        parts.append(compact(rows(report["card"])))
    return Group(*parts)


def steps(schedules: Sequence[Mapping[str, Any]]) -> Table:
    """One row per scheduler, one column per step."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("step")
    longest = max(len(s["steps"]) for s in schedules)
    for step in range(1, longest + 1):
        table.add_column(str(step))
    for schedule in schedules:
        table.add_row(schedule["system"], *schedule["steps"])
    return table


def waits(schedules: Sequence[Mapping[str, Any]]) -> Table:
    """Total waiting beside the paper's, and by program."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in ("scheduler", "total wait", "the paper's", "by program", "last end"):
        table.add_column(name, justify="left" if name in ("scheduler", "by program") else "right")
    for s in schedules:
        by_program = " ".join(f"{k}{v:g}" for k, v in s["waits"].items())
        table.add_row(
            s["system"], f"{s['total_wait']:g}", f"{s['paper']:g}", by_program, f"{s['makespan']:g}"
        )
    return table


def _claim(claim: Mapping[str, Any]) -> Text:
    colour = _COLOURS.get(claim["verdict"], "white")
    note = f" ({escape(claim['note'])})" if claim.get("note") else ""
    expected, got = (f"{v:g}" if isinstance(v, float) else str(v) for v in (claim["expected"], claim["got"]))
    return Text.from_markup(
        f"[{colour}]{claim['verdict']}[/]: {escape(claim['statement'])}: expected {expected}, got {got}{note}"
    )
