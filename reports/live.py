"""Live cells with the simulator's prediction beside each: a table per workload (``bench.live.beside``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.numbers import MISSING, counts, estimate

Row = Mapping[str, Any]
COLUMNS = (
    ("latency, s", "response_mean"),
    ("p95, s", "response_p95"),
    ("wait / exec", "wait_per_exec"),
    ("KV hits", "hit_rate"),
    ("preemptions", "preemptions"),
)
HOLD = "hold_p99"
GATED = (*COLUMNS[:2], ("calls/min", "steps_per_min"), *COLUMNS[2:4], ("p99 hold, s", HOLD))
"""Where a gate held anybody."""
NOTES = (
    "measured: waits, executions, hits and preemptions from the schedulers' logs, latency from the programs' "
    "scheduled arrivals as the client saw them; p95 of each seed's programs (none below 20); holds by a gate "
    "from the gateway's log, p99 of each seed's calls (none below 100)",
    "predicted: the simulator, SIMULATED, with the same programs, arrivals, policies and limits; step times "
    "fitted to other cells only (predicted.json in each cell says which), median of several runs",
    "95 % intervals: t over seeds; of ratios: exp of the t interval of paired log ratios",
)


def render(rows: Sequence[Row]) -> RenderableType:
    """A table for each workload and load."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((str(row["setting"]), _badge(row)), []).append(row)
    parts: list[RenderableType] = []
    for group in found.values():
        notes = [*_fewer(group), _clients(group), *_shared(group)]
        parts += [Text.from_markup(_title(group)), table(group)]
        parts += [Text(note, style="table.caption") for note in notes]
        parts.append(Text(""))
    return Group(*parts, *(Text(note, style="table.caption") for note in NOTES))


def _title(group: Sequence[Row]) -> str:
    workload, _, rest = str(group[0]["setting"]).partition(", ")
    what = f"[bold]{escape(workload)}[/], {escape(rest)}, {_seed_words(_seeds(group))}"
    return f"{what}\n[magenta]{escape(_badge(group[0]))}[/]"


def _seeds(group: Sequence[Row]) -> list[int]:
    """Of all its systems."""
    return sorted({seed for row in group for seed in row["seeds"]})


def _fewer(group: Sequence[Row]) -> list[str]:
    """Systems that lack a seed that others have."""
    seeds = _seeds(group)
    return [
        f"{row['system']}: only {_seed_words(row['seeds'])}" for row in group if sorted(row["seeds"]) != seeds
    ]


def _seed_words(seeds: Sequence[int]) -> str:
    """Which they are: seed 7; 6 seeds: 1-4, 6, 8."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return f"{len(seeds)} seeds: {', '.join(words)}"


def _badge(row: Row) -> str:
    """What all systems have in common: fronts and fallbacks are each system's own."""
    common = str(row["badge"]).partition("; FALLBACK")[0]
    return common.partition(", behind ")[0]


def table(rows: Sequence[Row]) -> Table:
    """Two lines a system: measured, and predicted."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    found.add_column("system")
    found.add_column("")
    columns = GATED if any(_held(row) for row in rows) else COLUMNS
    for label, _ in columns:
        found.add_column(label, justify="right")
    found.add_column(f"latency / {rows[0]['base']}", justify="right")
    for row in rows:
        found.add_row(
            escape(row["system"]), "measured", *_cells(row["measured"], columns), _estimate(row["ratio"])
        )
        predicted = _cells(row["predicted"], columns)
        found.add_row("", "predicted", *predicted, _estimate(row["predicted_ratio"]), style="dim")
    return found


def _held(row: Row) -> bool:
    return any((row[side].get(HOLD) or {}).get("value") for side in ("measured", "predicted"))


def _cells(numbers: Mapping[str, Any], columns: Sequence[tuple[str, str]]) -> list[str]:
    return [_estimate(numbers.get(name)) for _, name in columns]


def _estimate(entry: Mapping[str, Any] | None) -> str:
    return MISSING if entry is None else estimate({**entry, "note": ""})


def _clients(rows: Sequence[Row]) -> str:
    """What the clients said of themselves."""
    total: dict[str, int] = {}
    for row in rows:
        for verdict, count in row["verdicts"].items():
            total[verdict] = total.get(verdict, 0) + count
    return f"the clients of these cells called themselves: {counts(total)}"


def _shared(rows: Sequence[Row]) -> list[str]:
    """Where predictions are no forecast of programs not seen before."""
    share = max((row["shared_programs"] for row in rows if row["predicted"]), default=0.0)
    if not share:
        return []
    return [
        f"recorded programs: up to {share:.0%} of those predicted also ran in the cells that step times were "
        "fitted on (other seeds draw from the same records)"
    ]
