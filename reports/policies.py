"""Lines of a result's page about gates, retention and sandboxes, where any acted, and closed loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from reports.numbers import MISSING, number, percent

Value = Callable[[str], float | None]
"""A metric by its flat name; None or NaN where it is not known."""
FAMILIES = ("gate.", "keep.", "env.")
ASSUMED = (
    "on virtual time a sandbox's costs are assumed, not measured: preparing takes init_s = 30 s of one of "
    "64 cores and 7 GB, unless --knob environment.NAME says otherwise"
)


def lines(metrics: Mapping[str, Any], value: Value, closed_loop: bool) -> list[tuple[str, str]]:
    """(label, text) in the order of the page; an empty text is left out."""
    acted = any(name.startswith(FAMILIES) for name in metrics)
    if not (acted or closed_loop):
        return []
    return [
        ("steps", _steps(value, metrics) if closed_loop else ""),
        ("KV used for", _kv(value)),
        ("holds", _holds(value, metrics)),
        ("gate", _gate(value)),
        ("retention", _retention(value)),
        ("sandboxes", _sandboxes(value)),
        ("engines", _engines(value)),
    ]


def _known(value: Value, name: str) -> bool:
    found = value(name)
    return found is not None and math.isfinite(found)


def _with_interval(metrics: Mapping[str, Any], name: str) -> str:
    entry = metrics.get(name) or {}
    text, low, high = number(entry.get("value")), entry.get("low"), entry.get("high")
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return text
    return f"{text} [{number(low)}, {number(high)}]"


def _or_note(metrics: Mapping[str, Any], name: str) -> str:
    """Seconds, or why there are none."""
    entry = metrics.get(name) or {}
    text = number(entry.get("value"))
    return str(entry.get("note") or MISSING) if text == MISSING else f"{text} s"


def _steps(value: Value, metrics: Mapping[str, Any]) -> str:
    """Throughput as agents count it, and whether its parts fit together."""
    if not _known(value, "steps.per_min"):
        return ""
    return (
        f"{_with_interval(metrics, 'steps.per_min')} per min in [.2 H, H] (its halves "
        f"{number(value('steps.per_min_early'))}, {number(value('steps.per_min_late'))}); a cycle of "
        f"{number(value('steps.cycle_s'))} s, so N = X x cycle = {number(value('steps.product'))}, "
        f"{percent(value('steps.deviation'))} off the programs in the system; "
        f"all work done in {number(value('steps.makespan_s'))} s"
    )


def _kv(value: Value) -> str:
    if not _known(value, "kv_cost.decode"):
        return ""
    parts = [f"{part} {percent(value(f'kv_cost.{part}'))}" for part in ("decode", "prefill", "recompute")]
    return (
        f"{', '.join(parts)}, caching about {percent(value('kv_cost.caching'))} "
        f"(between {percent(value('kv_cost.caching_low'))} and {percent(value('kv_cost.caching_high'))}), "
        f"unused {percent(value('kv_cost.unused'))} of capacity x time"
    )


def _holds(value: Value, metrics: Mapping[str, Any]) -> str:
    if not value("hold.calls_share"):
        return ""
    return (
        f"{percent(value('hold.calls_share'))} of calls, {percent(value('hold.wait_share'))} of all waiting; "
        f"mean {_with_interval(metrics, 'hold.mean')} s, p99 {_or_note(metrics, 'hold.p99')}, "
        f"longest {number(value('hold.max'))} s; programs held over 60 s {percent(value('hold.over_60_s'))}, "
        f"over 600 s {percent(value('hold.over_600_s'))}; worst turn of a session: mean "
        f"{number(value('worst_turn.mean'))} s, longest {number(value('worst_turn.max'))} s"
    )


def _gate(value: Value) -> str:
    if not _known(value, "gate.admit"):
        return ""
    names = {"hold": "calls held", "admit": "programs let in", "pause": "pauses", "mark": "marks",
             "resume": "resumes", "move": "moves", "force": "forced", "expire": "leases ended"}  # fmt: skip
    counts = [f"{number(value(f'gate.{what}'))} {words}" for what, words in names.items()]
    paused = ""
    if _known(value, "gate.paused_s"):
        paused = f"; let in again after {number(value('gate.paused_s'))} s on average, at most "
        paused += f"{number(value('gate.paused_max_s'))} s"
    return ", ".join(counts) + paused


def _retention(value: Value) -> str:
    if not _known(value, "keep.keep"):
        return ""
    text = (
        f"kept {percent(value('keep.kept_share'))} of {number(_sum(value, 'keep.keep', 'keep.evict'))} times"
    )
    if not _known(value, "keep.regret"):
        return text
    return (
        f"{text}; {percent(value('keep.right_share'))} of the choices were right after the fact, "
        f"regret {number(value('keep.regret'))} block-seconds on average"
    )


def _sum(value: Value, *names: str) -> float:
    return sum(value(name) or 0.0 for name in names)


def _sandboxes(value: Value) -> str:
    if not _known(value, "env.peak_disk_gb"):
        return ""
    return (
        f"ready after {number(value('env.prepare_s'))} s; {number(value('env.waits'))} tools waited "
        f"{number(value('env.wait_s'))} s each; disk {number(value('env.disk_gb'))} GB on average, "
        f"{number(value('env.peak_disk_gb'))} GB at most; {ASSUMED}"
    )


def _engines(value: Value) -> str:
    if not _known(value, "imbalance.mean"):
        return ""
    return (
        f"gap of KV in use {percent(value('imbalance.mean'))} on average, "
        f"{percent(value('imbalance.max'))} at most, over 20 % for "
        f"{number(value('imbalance.minutes_over_20'))} min; {percent(value('moved.calls_share'))} of calls "
        f"went to another engine than before and computed "
        f"{number(value('moved.reprefill_tokens'))} tokens again"
    )
