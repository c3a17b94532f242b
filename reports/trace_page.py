"""The HTML page of ``bench trace stats``: one file, everything inside (``reports.page``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from reports.figure import Data
from reports.figure import render as draw
from reports.numbers import number, percent
from reports.page import Section, Table, table_of
from reports.page import render as render_page
from reports.trace import SAME, arrivals, law
from reports.trace_figures import FIGURES


def render(stats: Mapping[str, Any], data: Data, provenance: Mapping[str, Any]) -> str:
    """The page; ``stats`` as of ``bench.trace``, ``data`` as of ``bench.trace_page``."""
    pictures = {f.name: draw(f, data) for f in FIGURES if len(f.table(data))}

    def of(name: str) -> list[Any]:
        return [pictures[name]] if name in pictures else []

    sections = [
        *([_doubts(stats)] if stats["doubts"] else []),
        Section("Lengths and times", "", [_lengths(stats), *_tails(stats)], of("trace_lengths")),
        Section("Prefix sharing", _prefix_text(stats["prefix"]), (), of("trace_prefix")),
        Section(
            "Does least attained service make sense here?", _residual_text(stats), (), of("trace_residual")
        ),
        Section("Arrivals", arrivals(stats["arrivals"]), (), of("trace_arrivals")),
    ]
    return render_page(f"Trace: {stats['name']}", _summary(stats), sections, provenance)


def _summary(stats: Mapping[str, Any]) -> str:
    form = f", read as {stats['format']}" if stats["format"] else ""
    text = (
        f"{stats['programs']:,} programs, {stats['calls']:,} calls, "
        f"{number(stats['prefix']['prompt_tokens'])} prompt and {number(stats['output_tokens'])} output "
        f"tokens{form}."
    )
    lost = [f"{sum(stats[w].values()):,} {w}" for w in ("skipped", "repaired") if stats[w]]
    return text + (f"\n\n{' and '.join(lost)}: the reasons are under Provenance." if lost else "")


def _doubts(stats: Mapping[str, Any]) -> Section:
    lines = [f"* {d['rule']}: {d['saw']}; {d['why']}" for d in stats["doubts"]]
    return Section("These data look odd", "\n".join(lines))


def _lengths(stats: Mapping[str, Any]) -> Table:
    found = stats["distributions"]
    rows = [{"quantity": k, **row} for k, row in found.items() if row != found.get(SAME.get(k, ""))]
    return table_of(pd.DataFrame(rows))


def _tails(stats: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, fit in stats["fits"].items():
        tail = fit.get("tail")
        if not fit["laws"] or fit == stats["fits"].get(SAME.get(name, "")):
            continue
        rows.append(
            {
                "quantity": name,
                "values": fit["n"],
                "closest law (KS)": law(fit),
                "5 % point": fit["critical"],
                **{f"KS {row['law']}": row["ks"] for row in fit["laws"]},
                "Pareto tail": f"alpha {tail['alpha']:.2f} above {number(tail['xmin'])}" if tail else "",
                "of the values": percent(tail["share"]) if tail else "",
                "KS tail": tail["ks"] if tail else None,
            }
        )
    caption = "Laws by maximum likelihood; ~ marks those that the data refuse at 5 %."
    return [table_of(pd.DataFrame(rows), caption)] if rows else []


def _prefix_text(prefix: Mapping[str, Any]) -> str:
    return (
        f"An infinite cache would hold {percent(prefix['optimum'])} of the prompt tokens: "
        f"{percent(prefix['own'])} are left by the program's own earlier calls, {percent(prefix['others'])} "
        f"by programs before it. {percent(prefix['new'])} are new in their program."
    )


def _residual_text(stats: Mapping[str, Any]) -> str:
    lines = []
    for table in stats["residual_life"]:
        caveat = f" ({table['caveat']})" if table["caveat"] else ""
        lines.append(f"* {table['quantity']}: {table['verdict']}{caveat}: {table['explanation']}")
    return "\n".join(lines)
