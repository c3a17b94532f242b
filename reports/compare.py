"""A comparison as a terminal page and as Markdown for a pull request.

Takes ``bench.compare``'s plain data; the words are explained in docs/compare.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.agents import solved
from reports.card import compact, short
from reports.numbers import MISSING, estimate, number
from reports.varied import lasting, under
from reports.varied import tried as told

Comparison = Mapping[str, Any]
Row = Mapping[str, Any]

MARKER = "<!-- bench compare -->"
"""First line of the Markdown: by it a workflow finds its comment again."""
COLUMNS = ("metric", "BASE", "NEW", "NEW / BASE", "sign p", "verdict", "seeds needed")
_STYLES = {"worse": "bold red", "better": "green", "inconclusive": "yellow", "exploratory": "yellow"}
_MOST = "> 10,000"


def render(found: Comparison) -> RenderableType:
    """The sides, what differs, gated metrics, the others, notes, and the outcome."""
    heads = [
        Text.from_markup(
            f"[bold]{name:<4}[/] {escape(line)}" + (f"\n[magenta]{escape(badge)}[/]" * bool(badge))
        )
        for name, line, badge in sides(found)
    ]
    parts: list[RenderableType] = [*heads, *(Text(line) for line in facts(found))]
    kinds = [(gated, chosen(found, gated)) for gated in (True, False)]
    parts += [_table(found, rows, gated) for gated, rows in kinds if rows]
    parts += [Text(line) for line in solved(found)]
    parts += _cards(found)
    parts += [Text.from_markup(f"[yellow]note:[/] {escape(note)}") for note in remarks(found)]
    lines = [Text(outcome(found), style=_STYLES.get(found["outcome"], "green"))]
    if flips := flipped(found):
        lines.append(Text(flips, style="bold red"))
    return Group(*parts, *lines)


def _cards(found: Comparison) -> list[RenderableType]:
    """What the sides' numbers rest on, and under which variations each verdict was tried."""
    parts: list[RenderableType] = [compact(card_lines(found))]
    if not (tried := found.get("sensitivity")):
        return parts
    table = Table(box=None, pad_edge=False)
    for name in ("varied", "outcome", *tried["metrics"]):
        table.add_column(name.rpartition(".")[2] if "." in name else name)
    for row in under(tried):
        table.add_row(*(escape(cell) for cell in row))
    return [table, Text(told(tried), style="table.caption"), *parts]


def card_lines(found: Comparison) -> list[tuple[str, str]]:
    """The compact cards of both sides, one if they are equal, and whether the verdicts survive."""
    cards = {name: found[name.lower()].get("card") for name in ("BASE", "NEW")}
    tried = found.get("sensitivity")
    told = [("survives", "not varied here: bench compare ... --sensitivity")]
    if tried:
        told = [(f"survives {name.rpartition('.')[2]}", text) for name, text in lasting(tried)]
    if cards["BASE"] == cards["NEW"]:
        cards.pop("BASE")
    shown: list[tuple[str, str]] = []
    for name, card in cards.items():
        mark = f" {name}" if len(cards) > 1 else ""
        lines = short(card, None, "", "")[:3] if card else [("card", "these results have none")]
        shown += [(label + mark, text) for label, text in lines]
    return shown + told


def flipped(found: Comparison) -> str:
    """A line for an outcome that some variation changes; empty if none does."""
    tried = found.get("sensitivity")
    if not tried or tried["overall"]["survives"] != "no":
        return ""
    changed = ", ".join(f"{word} under {name}" for name, word in tried["overall"]["changed"].items())
    return f"THE VERDICT DOES NOT SURVIVE: {tried['overall']['verdict']} as it is, {changed}"


def _table(found: Comparison, rows: Sequence[Row], gated: bool) -> Table:
    table = Table(box=None, pad_edge=False, caption_justify="left", caption=caption(found, gated))
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("metric", "verdict") else "right")
    for row in rows:
        cells = [escape(c) for c in cells_of(row)]
        group, _, leaf = cells[0].rpartition(".")
        cells[0] = f"{group}\n.{leaf}"  # two lines, as intervals have
        table.add_row(*cells[:5], Text(cells[5], style=_STYLES.get(row["verdict"], "")), *cells[6:])
    return table


def markdown(found: Comparison) -> str:
    """The same as a comment: outcome first, gated metrics, the rest folded away."""
    lines = [MARKER, f"### bench compare: {outcome(found)}", ""]
    lines += [f"**{_text(flips)}**", ""] if (flips := flipped(found)) else []
    for name, line, badge in sides(found):
        lines += [f"* **{name}** {_text(line)}", *([f"  *{_text(badge)}*"] if badge else [])]
    lines += [f"* {_text(line)}" for line in facts(found)]
    lines += [f"* {_text(line)}" for line in solved(found)]
    lines += ["", *_grid(chosen(found, True)), "", f"<sub>{_text(caption(found, True))}</sub>", ""]
    if others := chosen(found, False):
        lines += ["<details><summary>other metrics (they decide nothing)</summary>", ""]
        lines += [*_grid(others), "", f"<sub>{_text(caption(found, False))}</sub>", "", "</details>", ""]
    lines += _card_markdown(found)
    lines += [f"> {_text(note)}\n>" for note in remarks(found)]
    return "\n".join(lines).removesuffix("\n>")


def _card_markdown(found: Comparison) -> list[str]:
    lines = ["| fidelity card | |", "|---|---|"]
    lines += [f"| {_cell(label)} | {_cell(text)} |" for label, text in card_lines(found)]
    if tried := found.get("sensitivity"):
        lines += ["", f"<details><summary>{_text(told(tried))}</summary>", ""]
        names = ["varied", "outcome", *(f"`{name}`" for name in tried["metrics"])]
        lines += ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in under(tried)]
        lines += ["", "</details>"]
    return [*lines, ""]


def _cell(text: str) -> str:
    return _text(text).replace("\n", "<br>").replace("|", "\\|")


def _grid(rows: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * 4 + "---|---:|"]
    for row in rows:
        cells = [_cell(c) for c in cells_of(row)]
        cells[0] = f"`{row['name']}`"
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _text(text: str) -> str:
    """Nothing of a name becomes HTML or emphasis."""
    for sign in ("\\", "`", "*", "_", "~"):
        text = text.replace(sign, "\\" + sign)
    return text.replace("<", "&lt;").replace(">", "&gt;")


def sides(found: Comparison) -> list[tuple[str, str, str]]:
    """BASE and NEW: name, what ran, badge; one that both have stands under NEW only."""
    badges = [found[name]["badge"] for name in ("base", "new")]
    badges[0] = "" if badges[0] == badges[1] else badges[0]
    return [(n, _side(found[n.lower()]), b) for n, b in zip(("BASE", "NEW"), badges, strict=True)]


def _side(side: Mapping[str, Any]) -> str:
    commits = ", ".join(side["commits"])
    return (
        f"{side['system']} on {side['workload']}, {side['load']}, {len(side['seeds'])} seeds "
        f"({spans(side['seeds'])}); code {side['code']}, commit {commits}; {side['where']}"
    )


def facts(found: Comparison) -> list[str]:
    """How it was compared, and in what the sides differ."""
    differ = ", ".join(f"{k} {a} -> {b}" for k, (a, b) in found["differences"].items())
    return [
        f"{found['method']}; threshold {found['threshold']:.3g}{_beyond(found['threshold'])}",
        f"differs: {differ or 'nothing that decides results'}",
    ]


def _beyond(threshold: float) -> str:
    if threshold == 0:
        return ": the test alone decides, and ~ only says that it found nothing"
    return f": ratios from {1 / (1 + threshold):.3g} to {1 + threshold:.3g} are no difference"


def chosen(found: Comparison, gated: bool) -> list[Row]:
    """The rows to show: all gated ones, of the others those with a number."""
    by_name = {row["name"]: row for row in found["metrics"]}
    rows = [by_name[name] for name in found["shown"] if name in by_name]
    return [r for r in rows if r["gated"] == gated and (gated or r["effect"] is not None)]


def cells_of(row: Row) -> list[str]:
    """One row as text, in the order of COLUMNS."""
    return [
        row["name"],
        estimate(row["base"]),
        estimate(row["new"]),
        effect(row),
        MISSING if row.get("sign_p") is None else f"{row['sign_p']:.2g}",
        row["verdict"],
        needed(row),
    ]


def effect(row: Row) -> str:
    """The ratio, or the difference with its sign, over its interval."""
    if row["effect"] is None:
        return MISSING
    show = _ratio if row["scale"] == "ratio" else _difference
    return f"{show(row['effect'])}\n[{show(row['low'])}, {show(row['high'])}]"


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}" if value < 100 else number(value)


def _difference(value: float | None) -> str:
    return (
        MISSING
        if value is None
        else "0"
        if value == 0
        else f"{'+' if value > 0 else '-'}{number(abs(value))}"
    )


def needed(row: Row) -> str:
    """Seeds from which on the threshold can be told from noise."""
    if row["effect"] is None or row["bar"] == (1.0 if row["scale"] == "ratio" else 0.0):
        return MISSING
    count = row["seeds_needed"]
    return _MOST if count is None else f"{count:,}"


def caption(found: Comparison, gated: bool) -> str:
    """What the intervals are."""
    rows = [r for r in chosen(found, gated) if r["effect"] is not None]
    levels = sorted({round(100 * r["level"], 1) for r in rows})
    told = " to ".join(f"{level:g}" for level in (levels[0], levels[-1])) if len(levels) > 1 else "95"
    if len(levels) == 1:
        told = f"{levels[0]:g}"
    what = (
        "gated: intervals of the effect at Holm's level" if gated else "not gated: 95 % each, not corrected"
    )
    mixed = "; signed effects are differences NEW - BASE (the metric may be 0)"
    return (
        (f"{what} ({told} %)" if gated else what)
        + "; BASE and NEW: means over seeds with 95 % t intervals"
        + (mixed if any(r["scale"] == "difference" for r in rows) else "")
        + "; seeds needed: to see an effect of the threshold with power 0.8"
    )


def remarks(found: Comparison) -> list[str]:
    """Notes, and what was compared although it differs."""
    marked = [
        f"compared although the {name} differs (--allow): {what}" for name, what in found["allowed"].items()
    ]
    return [" ".join(text.split()) for text in (*marked, *found["notes"])]


def outcome(found: Comparison) -> str:
    """The verdict in a sentence."""
    gated = [r for r in found["metrics"] if r["gated"]]
    names = {
        v: ", ".join(r["name"] for r in gated if r["verdict"] == v)
        for v in ("worse", "better", "inconclusive")
    }
    if found["outcome"] == "worse":
        return f"REGRESSION: NEW is worse in {names['worse']}"
    if found["outcome"] == "exploratory":
        return f"exploratory, no verdict: {_too_few(found)}"
    if found["outcome"] == "inconclusive":
        return f"inconclusive in {names['inconclusive']}: {_wanted(gated)}"
    return "no regression" + (f"; better in {names['better']}" if names["better"] else "")


def _too_few(found: Comparison) -> str:
    least = min(len(found[name]["seeds"]) for name in ("base", "new"))
    what = "paired seeds" if found["mode"] == "paired" else "seeds on a side"
    return f"{what} that count: {least}; a verdict needs {found['seeds_for_verdict']}"


def _wanted(gated: Sequence[Row]) -> str:
    """What would decide: seeds, or a number that is not there."""
    rows = [r for r in gated if r["verdict"] == "inconclusive"]
    if any(r["effect"] is None for r in rows):
        return "; ".join(r["why"] for r in rows if r["effect"] is None)
    seeds = [r["seeds_needed"] for r in rows]
    most = math.inf if None in seeds else max(seeds)
    count = _MOST if most == math.inf else f"about {most:,}"
    return f"the threshold is tighter than the noise of these seeds; {count} seeds (on each side) would tell"


def spans(seeds: Sequence[int]) -> str:
    """Seeds as people write them: first-last where there is no gap."""
    whole = list(range(seeds[0], seeds[-1] + 1)) == list(seeds) and len(seeds) > 1
    return f"{seeds[0]}-{seeds[-1]}" if whole else ", ".join(str(s) for s in seeds)
