"""The page of ``bench trace fit``: what matches the trace, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reports.numbers import number, percent


def render(facts: Mapping[str, Any]) -> RenderableType:
    """The page; the data are described in ``bench.fit_report``."""
    count = facts["programs"]
    head = (
        f"{facts['file']}: fitted to {facts['trace']} ({count['trace']:,} programs), "
        f"compared with {count['generated']:,} generated ones, seed {facts['seed']}"
    )
    parts: list[RenderableType] = [Text(head), Text(), _marginals(facts), Text(), _totals(facts)]
    if wrong := mismatches(facts):
        parts += [Text(), Text("does not match:", "bold"), *(Text(f"  {line}") for line in wrong)]
    parts += [Text(f"note: {line}", "dim") for line in facts["left_out"]]
    return Group(*parts, Text(), Text(f"run it: {command(facts)}"))


def command(facts: Mapping[str, Any]) -> str:
    """How to run what was fitted."""
    kind = "" if facts["arrivals"] == "poisson" else f" --rate {facts['arrivals']}@{facts['rate']:g}"
    return f"bench run --system plas --workload fitted:{facts['file']}{kind}"


def mismatches(facts: Mapping[str, Any]) -> list[str]:
    """Everything that a user of the generator must know to be different."""
    found = [
        f"{m['quantity']}: KS {m['ks']:.3f} (5 % point {number(m['critical'])})"
        for m in facts["marginals"]
        if m["verdict"] == "differs"
    ]
    for row in facts["residual_life"]:
        told = "too few programs" not in (row["trace"], row["generated"])
        if told and row["trace"] != row["generated"]:
            found.append(f"residual life of {row['quantity']}: {row['trace']}, generated {row['generated']}")
    hits = facts["prefix"]["optimum"]
    if hits["trace"] is not None and abs(hits["trace"] - hits["generated"]) > 0.05:
        found.append(f"prefix hits: {percent(hits['trace'])}, generated {percent(hits['generated'])}")
    return found


def _marginals(facts: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "median", "generated", "KS", "5 % point", ""):
        table.add_column(name, justify="left" if not name else "right")
    for m in facts["marginals"]:
        cells = (number(m["trace"]), number(m["generated"]), f"{m['ks']:.3f}", number(m["critical"]))
        table.add_row(m["quantity"], *cells, m["verdict"])
    return table


def _totals(facts: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "trace", "generated"):
        table.add_column(name, justify="left" if not name else "right")
    for row in facts["means"]:
        table.add_row(f"mean {row['quantity']}", number(row["trace"]), number(row["generated"]))
    names = {"optimum": "prefix hits, infinite cache", "own": "  from its own program",
             "others": "  from other programs", "new": "new in its program"}  # fmt: skip
    for key, label in names.items():
        row = facts["prefix"][key]
        table.add_row(label, percent(row["trace"]), percent(row["generated"]))
    for row in facts["residual_life"]:
        table.add_row(f"residual life, {row['quantity']}", row["trace"], row["generated"])
    return table
