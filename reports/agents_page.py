"""The part of a report about agents: who solved what, how long programs took, what their tools ran in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.agents import MB, TIMED, share, solved
from reports.numbers import MISSING, estimate, number, percent
from reports.page import Section, Table

Row = Mapping[str, Any]
OUTCOMES = ("workload", "tools in", "system", "seeds", "solved", "latency, s", "LLM", "tools", "rest",
            "engine-s per program", "per solved")  # fmt: skip
COSTS = ("tools in", "what", "n", "failed", "mean, ms", "p50, ms", "p95, ms")
TEXT = (
    "Solved: 95 % intervals by Wilson; a task that ran more than once (in another lap, under another seed) "
    "is one observation, by its share of successes. Latency: mean from a program's begin to its end; an "
    "interval over seeds where there are several, else within the run from 32 programs on. LLM (wait and "
    "execution), tools and the rest: shares of that time along critical paths. Engine-seconds: busy time of "
    "the engines, each step shared by the tokens that it computed of each call."
)


def section(rows: Sequence[Row], kinds: Sequence[Row], pairs: Sequence[Row]) -> Section:
    """``rows``: one per workload, sandbox and system (summaries' numbers over ``seeds``); ``kinds``: costs of
    sandboxes, one per kind; ``pairs``: comparisons of systems on the same tasks (``bench.agents.pairs``)."""
    tables = [Table(OUTCOMES, [_outcome(row) for row in rows], "What agents came to")]
    if kinds:
        caption = (
            "Tool environments: every sandbox of these results, without what checks ran; times of those that "
            "did not fail, a percentile where there are "
        )
        lines = [line for kind in kinds for line in _costs(kind)]
        tables.append(Table(COSTS, lines, f"{caption}enough", frozenset(COSTS[2:])))
        tables.append(_left(kinds))
    told = [f"* {pair['what']}: {'; '.join(solved(pair))}" for pair in pairs]
    return Section("Agents", "\n\n".join([TEXT, "\n".join(told)]), tables)


def _outcome(row: Row) -> list[str]:
    return [
        row["workload"], row["sandbox"] or MISSING, row["system"], str(row["seeds"]), share(row["success"]),
        estimate(row["latency"]).replace("\n", " "),
        *(percent(row["shares"].get(name)) for name in ("llm", "tool", "rest")),
        number(row["per_program"]), number(row["per_solved"]),
    ]  # fmt: skip


def _costs(kind: Row) -> list[list[str]]:
    def ms(value: float | None) -> str:
        return MISSING if value is None else number(1e3 * value)

    return [
        [kind["kind"], what, str(one["n"]), str(one["failed"]), *(ms(one[k]) for k in ("mean", "p50", "p95"))]
        for what in TIMED
        for one in (kind[what],)
    ]


def _left(kinds: Sequence[Row]) -> Table:
    columns = ("tools in", "sandboxes", "disk, MB", "most, MB", "retries", "tools killed", "left behind")
    rows = []
    for kind in kinds:
        disk, trouble = kind["disk"], kind["trouble"]
        sizes = [MISSING if disk[k] is None else number(disk[k] / MB) for k in ("mean", "most")]
        counts = [str(trouble[k]) for k in ("retry", "kill")]
        rows.append([kind["kind"], str(kind["sandboxes"]), *sizes, *counts, str(len(kind["leaks"]))])
    return Table(columns, rows, "", frozenset(columns[1:]))
