"""The terminal page of a sweep: a row for each system, load and setting, over all its seeds.

Takes plain data: ``points`` are summaries (``bench.summary``) with ``axes``, the names and
values in which they differ from each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.card import of_summary
from reports.numbers import estimate, number, percent

Point = Mapping[str, Any]

NOT_SUSTAINED = "not sustained"
_ESTIMATES = (
    ("s/token\nmean of ratios", "program.s_per_token.mean_of_ratios"),
    ("\nratio of means", "program.s_per_token.ratio_of_means"),
    ("response\np95, s", "program.response.p95"),
    ("output tok/s\nin [.2 H, H]", "measured.output_tokens_per_s"),
)


def render(points: Sequence[Point]) -> RenderableType:
    """A table for each workload and deployment, with what the numbers are and are not."""
    parts: list[RenderableType] = []
    for title, rows in _tables(points).items():
        parts += [Text.from_markup(title), table(rows), *cards(rows), Text("")]
    return Group(*parts, *_notes(points))


def _tables(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points by what is written over them: workload and badge, which says that they are simulated."""
    found: dict[str, list[Point]] = {}
    for point in points:
        title = f"[bold]{escape(point['workload'])}[/], {_seeds(point)}\n[magenta]{escape(point['badge'])}[/]"
        found.setdefault(title, []).append(point)
    return found


def cards(points: Sequence[Point]) -> list[RenderableType]:
    """The compact cards of a table's points, equal ones once."""
    found = {str(point["card"]): point for point in points if point.get("card")}
    return [card for point in found.values() if (card := of_summary(point)) is not None]


def _seeds(point: Point) -> str:
    seeds = point["seeds"]
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds from {min(seeds)} on"


def table(points: Sequence[Point]) -> Table:
    """One line (over its 95 % interval) for each point."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    axes = list(dict.fromkeys(name for point in points for name in point["axes"]))
    for name in axes:
        found.add_column(f"\n{name}")
    for label, _ in _ESTIMATES:
        found.add_column(label, justify="right")
    for label in ("KV\nhits", "wait\nshare", "\nbacklog"):
        found.add_column(label, justify="left" if "backlog" in label else "right")
    for point in points:
        found.add_row(*_row(point, axes), style="dim" if _grows(point) else "")
    return found


def _row(point: Point, axes: Sequence[str]) -> list[str]:
    metrics = point["metrics"]
    return [
        *(escape(str(point["axes"].get(name, "-"))) for name in axes),
        *(_short(metrics.get(name)) for _, name in _ESTIMATES),
        percent(_value(metrics, "kv.hit_rate")),
        percent(_value(metrics, "wait.wait_share")),
        NOT_SUSTAINED if _grows(point) else escape(str(point["trend"]["verdict"])),
    ]


def _short(entry: Mapping[str, Any] | None) -> str:
    """Value and interval; a note is too long for a column and stands in ``bench show``."""
    if entry is None or entry["value"] is None:
        return "-"
    return estimate({**entry, "note": ""})


def _value(metrics: Mapping[str, Any], name: str) -> float | None:
    entry = metrics.get(name)
    return None if entry is None else entry["value"]


def _grows(point: Point) -> bool:
    return "growing" in str(point["trend"]["verdict"])


def _notes(points: Sequence[Point]) -> list[Text]:
    counts = {len(point["seeds"]) for point in points}
    several = counts != {1}
    notes = [
        "95 % intervals: "
        + ("t over seeds" if several else "within-run, batch means; where there is none, see bench show")
    ]
    if any(_grows(point) for point in points):
        notes.append(
            f"{NOT_SUSTAINED}: the backlog grows in at least one seed, so these latencies depend on the "
            "number of programs"
        )
    if lost := [p for p in points if set(p["outcomes"]) - {"finished"}]:
        notes.append(f"{len(lost)} rows with programs that did not finish: latencies are of finished ones")
    if any("exploratory" in w for p in points for w in p["warnings"]) or not several:
        notes.append("exploratory: verdicts need at least 8 seeds (--seeds 8)")
    return [Text(note, style="table.caption") for note in notes]


def plan(facts: Mapping[str, Any]) -> str:
    """What a sweep is about to do, in a line or two. ``facts``: cells, there, programs, calls."""
    there = f", {facts['there']:,} of them already there" if facts["there"] else ""
    return (
        f"{facts['cells']:,} cells{there}; {facts['programs']:,} programs and about "
        f"{number(float(facts['calls']))} calls in all of them"
    )
