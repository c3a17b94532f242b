"""What gates, retention and environments did to programs: numbers from calls and from their own decisions.

Decisions are rows whose ``call`` is a program: "gate:WHAT:REASON" (``value``: tokens), "keep:WHAT:TOOL"
(``value``: until when, or the regret), "env:WHAT" (``value``: seconds or GB). Times in seconds, prices
and regret in block-seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.metrics import QUANTILES, Estimates, Numbers, by_program
from bench.stats import Estimate, batch_mean, batch_quantile, batch_ratio

GATE = ("admit", "hold", "mark", "unmark", "pause", "resume", "move", "force", "expire", "release")
LET_IN = ("admit", "resume", "move", "force")
KEEP = ("keep", "evict", "back", "gone")
LONG_S = (60.0, 600.0)
"""Holds longer than these are counted (ThunderAgent's reproductions: 600 s)."""
_DISK = ("env:prepare", "env:teardown", "env:gone")


def holds(calls: pd.DataFrame, order: Sequence[int]) -> Estimates:
    """Seconds that calls waited at the door of a gate, a part of their wait; all calls, those let in at once
    with 0. ``calls_share``: of calls that were held; ``wait_share``: of all waiting; ``over_60_s``,
    ``over_600_s``: of programs whose longest hold took longer.

    ``order``: program numbers in order of arrival.
    """
    names = ("mean", *QUANTILES, "max", "calls_share", "wait_share", *(f"over_{s:.0f}_s" for s in LONG_S))
    if not calls.hold_s.any():  # most runs: no gate
        return dict.fromkeys(names, Estimate(0.0))
    groups = by_program(calls, calls.hold_s, order)
    sums, counts = (np.array([f(g) for g in groups], dtype=float) for f in (np.sum, np.size))
    longest = np.array([g.max() for g in groups])
    return {
        "mean": batch_ratio(sums, counts),
        **{name: batch_quantile(groups, q) for name, q in QUANTILES.items()},
        "max": Estimate(float(longest.max())),
        "calls_share": batch_ratio(np.array([float((g > 0).sum()) for g in groups]), counts),
        "wait_share": Estimate(float(calls.hold_s.sum() / calls.wait_s.sum())),
        **{f"over_{s:.0f}_s": batch_mean((longest > s).astype(float)) for s in LONG_S},
    }


def worst_turns(calls: pd.DataFrame, order: Sequence[int]) -> Estimates:
    """The longest response of each program's calls, holds included (s): mean over programs and percentiles.

    A program whose calls are quick but for one is a bad session: means over calls do not show it.
    """
    whole = calls[~calls.aborted]
    if whole.empty:
        return {}
    worst = np.array([g.max() for g in by_program(whole, whole.t_end - whole.t_arrive, order)])
    each = [worst[i : i + 1] for i in range(worst.size)]
    return {
        "mean": batch_mean(worst),
        **{name: batch_quantile(each, q) for name, q in QUANTILES.items()},
        "max": Estimate(float(worst.max())),
    }


def sessions(programs: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Per program that made a call: ``context`` (its longest prompt and reply, tokens), ``hold`` (its longest
    hold), ``held`` (all of them) and ``worst`` (its longest response), in seconds."""
    rows = calls.assign(
        context=calls.prompt_tokens + calls.output_tokens, response=calls.t_end - calls.t_arrive
    )
    found = rows.groupby("program").agg(
        context=("context", "max"), hold=("hold_s", "max"), held=("hold_s", "sum"), worst=("response", "max")
    )
    return found.loc[found.index.isin(programs.program)].reset_index()


def gate(decisions: pd.DataFrame) -> Numbers:
    """How often a gate did what (``admit``, ``pause``, ...), and ``paused_s``, ``paused_max_s``: from a pause
    until its program was let in again, mean and longest. Empty without a gate's decisions."""
    rows = _of(decisions, "gate")
    if rows.empty:
        return {}
    seconds = paused(rows)
    return {
        **{what: float((rows.what == what).sum()) for what in GATE},
        "paused_s": float(seconds.mean()) if seconds.size else math.nan,
        "paused_max_s": float(seconds.max()) if seconds.size else math.nan,
    }


def paused(rows: pd.DataFrame) -> np.ndarray:
    """How long each pause took (s), of a gate's rows with their ``what``; those that a program's end (or
    that of its lease) ended are no waits."""
    found, since = [], {}
    ordered = rows.sort_values("time", kind="stable")
    for time, program, what in zip(ordered.time, ordered.call, ordered.what, strict=True):
        if what == "pause":
            since[program] = time
        elif what in LET_IN and program in since:
            found.append(time - since.pop(program))
        elif what in ("release", "expire"):
            since.pop(program, None)
    return np.array(found, dtype=np.float64)


def keep(decisions: pd.DataFrame) -> Numbers:
    """What a retention policy chose: counts of KEEP, ``kept_share``, and, where it says, ``regret`` (mean per
    absence that is over, block-seconds) and ``right_share`` (absences without any). Empty without one."""
    rows = _of(decisions, "keep")
    rows = rows[rows.what.isin(KEEP)]
    if rows.empty:
        return {}
    counts = {what: float((rows.what == what).sum()) for what in KEEP}
    regret = rows[rows.what.isin(("back", "gone"))]["value"].dropna()
    chosen = counts["keep"] + counts["evict"]
    return {
        **counts,
        "kept_share": counts["keep"] / chosen if chosen else math.nan,
        "regret": float(regret.mean()) if len(regret) else math.nan,
        "right_share": float((regret <= 0).mean()) if len(regret) else math.nan,
    }


def environment(decisions: pd.DataFrame, until: float) -> Numbers:
    """Sandboxes: ``prepare_s`` (from asking to ready, mean), ``waits`` (tools that waited for one) and
    ``wait_s`` (their mean), ``peak_disk_gb``, ``disk_gb`` (the average up to ``until``, s). Or empty."""
    rows = _of(decisions, "env")
    if rows.empty:
        return {}
    ready, waits = (rows[rows.what == what]["value"] for what in ("ready", "wait"))
    used = disk(decisions)
    spans = np.diff(np.append(used.time.to_numpy(), max(until, float(used.time.max()))))
    whole = float(spans.sum())
    return {
        "prepare_s": float(ready.mean()) if len(ready) else math.nan,
        "waits": float(len(waits)),
        "wait_s": float(waits.mean()) if len(waits) else math.nan,
        "peak_disk_gb": float(used.gb.max()),
        "disk_gb": float((used.gb * spans).sum()) / whole if whole else math.nan,
    }


def disk(decisions: pd.DataFrame) -> pd.DataFrame:
    """Disk of all sandboxes over time: ``time`` and ``gb`` from then on, from 0 GB at 0 s."""
    rows = decisions[decisions.rule.isin(_DISK)].sort_values("time", kind="stable")
    start = pd.DataFrame({"time": [0.0], "gb": [0.0]})
    return pd.concat([start, pd.DataFrame({"time": rows.time, "gb": rows["value"]})], ignore_index=True)


def regrets(decisions: pd.DataFrame) -> pd.DataFrame:
    """Per tool: absences that are over (``n``), the choices of all (``kept``, ``evicted``), and the mean
    ``regret`` (block-seconds; NaN where the policy does not say)."""
    rows = _of(decisions, "keep")
    rows = rows[rows.what.isin(KEEP)]
    tools = rows.rule.astype(str).str.split(":", n=2).str[2].replace("", "unknown")
    over = rows.what.isin(("back", "gone"))
    marked = pd.DataFrame(
        {
            "tool": tools,
            "n": over,
            "kept": rows.what == "keep",
            "evicted": rows.what == "evict",
            "regret": rows["value"].where(over),
        }
    )
    found = marked.groupby("tool").agg(
        n=("n", "sum"), kept=("kept", "sum"), evicted=("evicted", "sum"), regret=("regret", "mean")
    )
    return found.reset_index()


def _of(decisions: pd.DataFrame, family: str) -> pd.DataFrame:
    """The rows of a family of rules, with ``what`` they say."""
    rows = decisions[decisions.rule.astype(str).str.startswith(f"{family}:")]
    return rows.assign(what=rows.rule.astype(str).str.split(":").str[1])
