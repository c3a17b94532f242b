"""The terminal page of one result (or of one configuration over several seeds).

Takes the summary as plain data: see ``bench.summary`` for the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports import agents, policies
from reports.card import of_summary
from reports.numbers import counts, estimate, number, percent

OPEN = ", inf)"
"""How an interval without an upper end ends (``reports.numbers.estimate``)."""

Summary = Mapping[str, Any]

_LATENCIES = (
    ("program response, s", "program.response"),
    ("program s per output token", "program.s_per_token"),
    ("call TTFT, s", "call.ttft"),
    ("call TPOT, s", "call.tpot"),
)


def render(summary: Summary) -> RenderableType:
    """What ran, latencies with intervals, the other numbers, the card, warnings; ``footer`` ends the page."""
    parts: list[RenderableType] = [_head(summary), latencies(summary), numbers(summary)]
    if summary.get("kinds"):
        parts.append(kinds(summary["kinds"]))
    if (card := of_summary(summary)) is not None:
        parts.append(card)
    parts += [Text.from_markup(f"[yellow]warning:[/] {escape(w)}") for w in summary.get("warnings", ())]
    return Group(*parts)


def _head(summary: Summary) -> RenderableType:
    seeds = summary.get("seeds") or [summary["seed"]]
    seed = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}-{seeds[-1]}"
    title = f"[bold]{escape(summary['system'])}[/] on [bold]{escape(summary['workload'])}[/]"
    return Text.from_markup(
        f"{title}, {escape(summary['load'])}, {seed}\n[magenta]{escape(summary['badge'])}[/]"
    )


def latencies(summary: Summary) -> Table:
    """Mean and percentiles, each over its 95 % interval."""
    metrics = summary["metrics"]
    table = Table(caption_justify="left", box=None, pad_edge=False)
    caption = _method(summary)
    table.add_column("")
    for name in ("mean", "p50", "p95", "p99"):
        table.add_column(name, justify="right")
    for label, prefix in _LATENCIES:
        mean = metrics.get(f"{prefix}.mean") or metrics.get(f"{prefix}.mean_of_ratios")
        cells = [estimate(c) for c in (mean, *(metrics.get(f"{prefix}.{q}") for q in ("p50", "p95", "p99")))]
        if OPEN in "".join(cells) and OPEN not in caption:
            caption += f"\n[x{OPEN}: the tail is in few batches, and the data give no upper end"
        table.add_row(label, *cells)
    table.caption = Text(caption, style="table.caption")
    return table


def _method(summary: Summary) -> str:
    if len(summary.get("seeds", ())) > 1:
        return f"95 % intervals: t over {len(summary['seeds'])} seeds"
    return "95 % intervals: within-run, batch means; for verdicts use >= 8 seeds (--seeds 8)"


def numbers(summary: Summary) -> Table:
    """Everything else, one line each."""
    metrics = summary["metrics"]

    def value(name: str) -> float | None:
        entry = metrics.get(name)
        return None if entry is None else entry["value"]

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for label, text in _lines(summary, value):
        if text:
            table.add_row(label, escape(text))
    return table


def _lines(summary: Summary, value: Callable[[str], float | None]) -> list[tuple[str, str]]:
    def n(name: str) -> str:
        return number(value(name))

    def p(name: str) -> str:
        return percent(value(name))

    mean = _mean(summary)
    swaps = bool(value("exec.swap"))
    return [
        ("throughput", _throughput(summary["metrics"], n("throughput.window_s"))),
        (
            "s per output token",
            f"mean of ratios {n('program.s_per_token.mean_of_ratios')}, "
            f"ratio of means {n('program.s_per_token.ratio_of_means')}",
        ),
        (
            "wait / exec",
            f"all calls {n('wait.wait_s')} / {n('wait.exec_s')} s per program (wait {p('wait.wait_share')}); "
            f"critical path {n('wait.cp_wait_s')} / {n('wait.cp_exec_s')} s, "
            f"tools {n('wait.cp_tool_s')} s, people {n('wait.cp_think_s')} s",
        ),
        (
            "exec",
            f"prefill {p('exec.prefill')}, re-prefill {p('exec.reprefill')}, decode {p('exec.decode')}"
            + (f", swap {p('exec.swap')}" if swaps else ""),
        ),
        (
            "KV hits",
            f"{p('kv.hit_rate')} of prompt tokens; an infinite cache would reach {p('kv.optimum')} "
            f"(computed, re-prefill included: {p('kv.computed')})",
        ),
        (
            "preemptions",
            f"{n('preemptions.total')} ({n('preemptions.per_call')} per call): "
            f"displaced {n('preemptions.displaced')}, evicted {n('preemptions.evicted')}; "
            f"demotions {n('preemptions.demotions')}, promotions {n('preemptions.promotions')}{mean}",
        ),
        ("levels", _levels(summary)),
        (
            "utilisation",
            f"over the busy window, ramp-up and drain included: engines busy {p('utilisation.busy')}, "
            f"KV in use {p('utilisation.kv')}, {n('system.mean_programs')} programs in the system on average",
        ),
        *policies.lines(summary["metrics"], value, summary["trend"]["verdict"] == "closed loop"),
        ("programs", _programs(summary, p("system.finished_share"))),
        ("trend", _trend(summary["trend"])),
        *agents.lines(summary),
        ("client", str((summary.get("client") or {}).get("text", ""))),
        ("gateway", _books(summary.get("books"))),
        ("Little's law", _littles_law(n) if summary["trend"]["verdict"] == "closed loop" else ""),
    ]


def _mean(summary: Summary) -> str:
    """What counts are, where they are not of one run."""
    seeds = len(summary.get("seeds", ()))
    return f" (means of {seeds} seeds)" if seeds > 1 else ""


def _levels(summary: Summary) -> str:
    """Where calls finished; nothing for a scheduler with one queue."""
    levels = summary.get("levels") or {}
    if len(levels) < 2 and summary.get("queues", 1) < 2:
        return ""
    return "calls finished in level " + ", ".join(f"{k}: {percent(share)}" for k, share in levels.items())


def _throughput(metrics: Mapping[str, Any], window: str) -> str:
    def rates(group: str) -> str:
        units = {"programs": "programs/s", "calls": "calls/s", "output_tokens": "output tok/s"}
        texts = (f"{estimate(metrics.get(f'{group}.{k}_per_s'))} {unit}" for k, unit in units.items())
        return ", ".join(texts).replace("\n", " ")

    note = (metrics.get("measured.programs_per_s") or {}).get("note")
    measured = f"in [.2 H, H] (H = last arrival): {rates('measured')}" + (f"; {note}" if note else "")
    busy = f"over a busy window of {window} s, ramp-up and drain included"
    return f"{measured}\n{rates('throughput')} {busy}"


def _littles_law(n: Callable[[str], str]) -> str:
    """Both sides of N = X R; a closed loop must hold its number of programs."""
    return (
        f"{n('littles_law.programs')} programs in the system; {n('littles_law.programs_per_s')} programs/s x "
        f"{n('littles_law.response_s')} s = {n('littles_law.product')} in [.2 H, H]; equal in the long run"
    )


def _programs(summary: Summary, share: str) -> str:
    text = f"{counts(summary['outcomes'])} ({share} finished), {summary['calls']:,} calls"
    if (seeds := len(summary.get("seeds", ()))) > 1:
        text += f" in all {seeds} seeds"
    for word in ("skipped", "repaired"):
        for reason, count in (summary.get(word) or {}).items():
            where = (summary.get("where") or {}).get(reason)
            text += f"; {word} {count}: {reason}" + (f" (first at {where})" if where else "")
    return text


def _books(books: Mapping[str, Any] | None) -> str:
    """The gateway's process table against the schedulers' logs, where a live run has both."""
    if not books:
        return ""
    return (
        f"its table equals the schedulers' logs in {books['equal']} of {books['programs']} programs, "
        f"{books['over_several_engines']} of which ran on several engines"
    )


def _trend(trend: Mapping[str, Any]) -> str:
    growth = trend.get("growth_per_s")
    if growth is None:
        return str(trend["verdict"])
    low, high = trend["growth_low"], trend["growth_high"]
    text = (
        f"{trend['verdict']}: backlog {growth:+.3g} [{low:+.3g}, {high:+.3g}] programs per s in [.2 H, H], "
        f"{percent(trend['completed_share'])} completed of those that arrived there"
    )
    unclear = "; whether this rate can be sustained, more programs (--n) would tell"
    return text + unclear if trend["verdict"] == "unclear" else text


def kinds(rows: Mapping[str, Mapping[str, float]]) -> Table:
    """Per kind of program."""
    table = Table("kind", box=None, pad_edge=False)
    for name in ("programs", "mean response, s", "s per token"):
        table.add_column(name, justify="right")
    for kind, row in rows.items():
        table.add_row(kind, number(row["programs"]), number(row["response_s"]), number(row["s_per_token"]))
    return table


def footer(summary: Summary) -> str:
    """Where the result is and the command that repeats it: plain lines, never wrapped, to copy."""
    labels = ("result hash", "results", "repeat", "note")
    found = {label: summary.get(label.replace(" ", "_")) for label in labels}
    return "\n".join(f"{label:<12}{text}" for label, text in found.items() if text)
