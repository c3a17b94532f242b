"""Whole fidelity cards, with sensitivity and varied verdicts: terminal page, Markdown, section of a report.

Takes the plain data of ``bench.cards``: entries, and comparisons whose verdicts were varied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.card import RUN_VERDICT, compact, rows
from reports.page import Section
from reports.page import Table as PageTable
from reports.varied import caption, columns, grid, lasting, tried, under, versus

Entry = Mapping[str, Any]


def render(entries: Sequence[Entry], comparisons: Sequence[Mapping[str, Any]] = ()) -> RenderableType:
    """Every entry's card and sensitivity, and the comparisons whose verdicts were varied."""
    parts: list[RenderableType] = []
    for entry in entries:
        parts += [Text(heading(entry), style="bold"), compact(rows(entry["card"]))]
        parts += _sensitivity(entry)
        parts += [Text(f"left out: {text}") for text in entry.get("left_out", ())]
    for found in comparisons:
        parts += [Text(versus(found), style="bold"), compact(lasting(found)), Text()]
    return Group(*parts)


def heading(entry: Entry) -> str:
    """What an entry is the card of."""
    seeds = entry["seeds"]
    told = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}-{seeds[-1]} ({len(seeds)})"
    return f"{entry['system']} on {entry['workload']}, {entry['load']}, {told}"


def _sensitivity(entry: Entry) -> list[RenderableType]:
    found = entry["sensitivity"]
    if not found:
        return [
            compact([("sensitivity", f"not computed: {entry['command']}"), ("verdict", RUN_VERDICT)]),
            Text(),
        ]
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns(found)):
        table.add_column(name.replace(", ", ",\n"), justify="right" if place else "left")
    for row in grid(found):
        table.add_row(*(escape(cell) for cell in row))
    words = Text(caption(found), style="table.caption")
    return [table, words, compact([("verdict", RUN_VERDICT)]), Text()]


def markdown(entries: Sequence[Entry], comparisons: Sequence[Mapping[str, Any]] = ()) -> str:
    """The full cards for a document or a pull request."""
    lines: list[str] = []
    for entry in entries:
        lines += [f"### {_plain(heading(entry))}", "", "| fidelity card | |", "|---|---|"]
        lines += [f"| {label} | {_plain(text)} |" for label, text in rows(entry["card"])]
        found = entry["sensitivity"]
        if not found:
            lines += [f"| sensitivity | not computed: `{entry['command']}` |", ""]
            continue
        lines += ["", _line(columns(found)), "|---" + "|---:" * len(found["metrics"]) + "|"]
        lines += [*(_line(row) for row in grid(found)), "", f"<sub>{_plain(caption(found))}</sub>", ""]
    for one in comparisons:
        lines += [f"### {_plain(versus(one))}", "", "| gate | verdict |", "|---|---|"]
        lines += [*(f"| {_plain(name)} | {_plain(text)} |" for name, text in lasting(one)), ""]
    return "\n".join(lines).rstrip()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    for sign in ("\\", "`", "*", "_", "~", "|"):
        text = text.replace(sign, "\\" + sign)
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("\n", "<br>")


def section(
    entries: Sequence[Entry], comparisons: Sequence[Mapping[str, Any]] = (), note: str = ""
) -> Section:
    """The cards of a report: equal ones once, with what they are the cards of; what was varied beside."""
    same: dict[str, list[Entry]] = {}
    for entry in entries:
        same.setdefault(json.dumps(entry["card"], sort_keys=True), []).append(entry)
    tables = [PageTable(["fidelity card", ""], rows(of[0]["card"]), _holders(of)) for of in same.values()]
    done = [entry for entry in entries if entry["sensitivity"]]
    tables += [
        PageTable(
            columns(e["sensitivity"]), grid(e["sensitivity"]), f"{heading(e)}: {caption(e['sensitivity'])}"
        )
        for e in done
    ]
    for one in comparisons:
        tables.append(PageTable(["gate", "verdict, and whether it survives"], lasting(one), versus(one)))
        tables.append(PageTable(["varied", "outcome", *one["metrics"]], under(one), tried(one)))
    return Section("Fidelity card", _words(entries, done, comparisons, note), tables)


def _holders(entries: Sequence[Entry]) -> str:
    systems = dict.fromkeys(str(entry["system"]) for entry in entries)
    workloads = dict.fromkeys(str(entry["workload"]) for entry in entries)
    return f"{', '.join(systems)} on {', '.join(workloads)}: {len(entries)} groups of results"


def _words(
    entries: Sequence[Entry], done: Sequence[Entry], comparisons: Sequence[Mapping[str, Any]], note: str
) -> str:
    lines = [note] if note else []
    if left := len(entries) - len(done):
        command = next(e["command"] for e in entries if not e["sensitivity"])
        lines.append(f"* Sensitivity is not computed of {left} of {len(entries)} groups: {command}")
    if not comparisons and not note:
        lines.append("* Whether a verdict survives: not varied here; bench compare BASE NEW --sensitivity")
    return "\n".join(lines)
