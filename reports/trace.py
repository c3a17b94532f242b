"""What a workload looks like: counts, lengths, arrivals, prefix sharing, and who LAS would favour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.numbers import number, percent

SAME = {"output tokens per program": "output tokens per call"}
"""Rows that are left out where they repeat another."""
INFINITE_VARIANCE = 3.0
OVER = "over the context"
SHOWN = 6
"""Reasons of skipping and repairing that the page names; the rest are in --json."""


def render(stats: Mapping[str, Any]) -> RenderableType:
    """The page of ``bench trace stats``; the data are described in ``bench.trace``."""
    parts: list[RenderableType] = [_head(stats)]
    parts += [_doubts(stats["doubts"])] if stats["doubts"] else []
    parts += [Text(), lengths(stats["distributions"], stats["fits"])]
    parts += [Text(line) for line in heavy(stats["fits"])]
    parts += [Text(), Text(arrivals(stats["arrivals"]))]
    parts += [Text(), prefixes(stats["prefix"])]
    for table in stats["residual_life"]:
        parts += [Text(), residual_life(table)]
    return Group(*parts)


def _head(stats: Mapping[str, Any]) -> Text:
    prefix = stats["prefix"]
    form = f" ({escape(stats['format'])})" if stats["format"] else ""
    forks = f", {_many(stats['forks'], 'fork')}" if stats["forks"] else ""
    lines = [
        f"[bold]{escape(str(stats['name']))}[/]{form}: {_many(stats['programs'], 'program')}, "
        f"{_many(stats['calls'], 'call')}{forks}, "
        f"{number(prefix['prompt_tokens'])} prompt and {number(stats['output_tokens'])} output tokens"
    ]
    for word in ("skipped", "repaired"):
        lines += [escape(line) for line in losses(word, stats[word], stats["where"], stats["read"])]
    return Text.from_markup("\n".join(lines))


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def losses(word: str, counts: Mapping[str, int], where: Mapping[str, str], read: int) -> list[str]:
    """Lines like ``skipped 3 of 16: empty file 1 (a.json)``, the most frequent reasons first."""
    if not counts:
        return []
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown = []
    for reason, count in ordered[:SHOWN]:
        place = where.get(reason, "").partition(", ")[0]
        shown.append(f"  {count:,} x {reason}" + (f" (first: {place})" if place else ""))
    more = [f"  and {len(ordered) - SHOWN} more reasons (--json)"] if len(ordered) > SHOWN else []
    of = f" of {read:,} records" if read and word == "skipped" else ""
    hint = (
        ["  (--on-overflow truncate keeps what fits)"]
        if word == "skipped" and any(OVER in r for r in counts)
        else []
    )
    return [f"{word} {sum(counts.values()):,}{of}:", *shown, *more, *hint]


def _doubts(found: Sequence[Mapping[str, str]]) -> Text:
    lines = [f"  {d['rule']}: {escape(d['saw'])} - {escape(d['why'])}" for d in found]
    return Text.from_markup("\n".join(["[bold]these data look odd:[/]", *lines]))


def lengths(rows: Mapping[str, Mapping[str, float]], fits: Mapping[str, Mapping[str, Any]] = {}) -> Table:
    """Mean and percentiles of each quantity, and the law closest to it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    names = ("n", "mean", "p50", "p90", "p99", "max")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    if fits:
        table.add_column("closest law, KS (~ refused at 5 %)", no_wrap=True)
    for label, row in rows.items():
        if row == rows.get(SAME.get(label, "")):  # programs of one call
            continue
        cells = [number(row.get(name)) for name in names]
        table.add_row(label, *cells, *([law(fits.get(label))] if fits else []))
    return table


def law(fit: Mapping[str, Any] | None) -> str:
    """``lognormal(4.39, 1.55) .012``, with ~ where the data refuse it; empty without a fit.

    The parameters are mu and sigma, or k and scale.
    """
    if not fit or not fit["laws"]:
        return ""
    best = next(row for row in fit["laws"] if row["law"] == fit["best"])
    values = ", ".join(number(v) for k, v in best.items() if k not in ("law", "ks"))
    return f"{' ' if fit['holds'] else '~'}{best['law']}({values}) {best['ks']:.3f}"


def heavy(fits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line on the quantities whose tail is a power law of infinite variance, if any are."""
    tails = {name: fit["tail"] for name, fit in fits.items() if fit.get("tail")}
    found = [
        f"{name} {t['alpha']:.2f} from {number(t['xmin'])} on ({percent(t['share'])})"
        for name, t in tails.items()
        if t["holds"] and t["alpha"] < INFINITE_VARIANCE
    ]
    return (
        [f"Pareto tails not refused (density exponent; below 3 no variance): {'; '.join(found)}"]
        if found
        else []
    )


def arrivals(found: Mapping[str, Any] | None) -> str:
    """A paragraph on recorded arrivals."""
    if found is None:
        return "arrivals: none recorded, so a run needs --rate or --concurrency"
    if "cv" not in found:
        return "arrivals: all programs at once, so a run needs --rate or --concurrency to mean anything"
    text = (
        f"arrivals: {number(found['rate'])} programs/s over {number(found['span_s'])} s, "
        f"CV of the gaps {number(found['cv'])} ± {number(found['cv_error'])} (Poisson 1, "
        f"KS to it {found['ks_poisson']:.3f}, 5 % point {found['critical']:.3f})"
    )
    if not found["together"] and (closest := law(found["fits"]).strip()):
        text += f"; closest law {closest}"
    return text + (f"; {percent(found['together'])} together with another" if found["together"] else "")


def prefixes(prefix: Mapping[str, Any]) -> RenderableType:
    """Hits of an infinite cache, in all and by prompt length."""
    title = Text(
        f"prefix hits of an infinite cache: {percent(prefix['optimum'])} of prompt tokens "
        f"({number(prefix['hit_tokens'])} of {number(prefix['prompt_tokens'])})"
    )
    if not prefix["hit_tokens"]:
        return title
    grid = Table(box=None, pad_edge=False)
    for name in ("prompt tokens", "calls", "from its own program", "from other programs", "optimum"):
        grid.add_column(name, justify="right")
    for row in prefix["bins"]:
        grid.add_row(
            f"{number(row['above'])} - {number(row['up_to'])}",
            number(row["calls"]),
            *(percent(row[name]) for name in ("own", "others", "optimum")),
        )
    grid.add_row("all", "", *(percent(prefix[name]) for name in ("own", "others", "optimum")))
    return Group(title, grid)


def residual_life(table: Mapping[str, Any]) -> RenderableType:
    """Mean residual life: what is left, on average, of a program that got this far."""
    rows: Sequence[Mapping[str, float]] = table["rows"]
    caveat = f" ({table['caveat']})" if table.get("caveat") else ""
    title = Text(f"mean residual life of a program's {table['quantity']}: {table['verdict']}{caveat}", "bold")
    meaning = Text(str(table["explanation"]), style="dim")
    if table["verdict"] == "too few programs":
        return Group(title, meaning)
    grid = Table(box=None, pad_edge=False)
    for name in ("already received", "programs left", "mean left", "ends before next row"):
        grid.add_column(name, justify="right")
    for row in rows:
        grid.add_row(
            number(row["age"]), number(row["alive"]), number(row["mean_left"]), percent(row["hazard"])
        )
    return Group(title, grid, meaning)
