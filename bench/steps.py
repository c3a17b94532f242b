"""Steps of agents: a call and the tool (or person, or wait for branches) that follows it.

The unit of ThunderAgent's figures, which count steps a minute between minutes 10 and 70. A step begins when
its call arrives and ends when the thread's next call does; a thread's last step ends with its call, that of
the call that ends a program last with the program.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from bench.metrics import Estimates, Numbers, busy_window, in_system, measured_window
from bench.stats import BATCHES, WITHIN_RUN, Estimate, t_interval

PAPER_S = (600.0, 4200.0)
"""The window of the paper's figures: minutes 10 to 70."""
FEWEST = 4 * BATCHES


def per_minute(calls: pd.DataFrame, window: tuple[float, float]) -> Estimate:
    """Calls that finish in a window (s) per minute of it; the interval is that of 16 equal spans."""
    start, end = window
    if end <= start:
        return Estimate(math.nan, note="all programs arrive at once")
    ends = calls.t_end[~calls.aborted]
    counts, _ = np.histogram(ends[ends.between(start, end)], bins=BATCHES, range=window)
    rates = counts * 60.0 * BATCHES / (end - start)
    if counts.sum() < FEWEST:
        return Estimate(float(rates.mean()), note=f"no interval ({counts.sum()} steps < {FEWEST})")
    return t_interval(rates.tolist(), WITHIN_RUN)


def rates(programs: pd.DataFrame, calls: pd.DataFrame) -> Estimates:
    """Steps per minute: ``per_min`` in the measured window [.2 H, H], its halves ``per_min_early`` and
    ``per_min_late`` (contexts of a closed loop age), ``per_min_paper`` in minutes 10 to 70 where the
    programs arrive for so long, and ``makespan_s``, the time that all the work took."""
    start, end = window = measured_window(programs)
    middle = (start + end) / 2
    whole = busy_window(programs)
    paper = Estimate(math.nan, note="the programs do not arrive for 70 minutes")
    if end >= PAPER_S[1]:
        paper = per_minute(calls, PAPER_S)
    return {
        "per_min": per_minute(calls, window),
        "per_min_early": per_minute(calls, (start, middle)),
        "per_min_late": per_minute(calls, (middle, end)),
        "per_min_paper": paper,
        "makespan_s": Estimate(whole[1] - whole[0]),
    }


def steps(programs: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """``start`` and ``end`` (s) of every step."""
    rows = calls.assign(thread=calls.thread.astype(str)).sort_values(
        ["program", "thread", "index"], kind="stable"
    )
    following = rows.t_arrive.shift(-1)
    same = (rows.program == rows.program.shift(-1)) & (rows.thread == rows.thread.shift(-1))
    last = rows.t_end == rows.groupby("program").t_end.transform("max")
    over = rows.program.map(programs.set_index("program").t_end)
    end = following.where(same, over.where(last, rows.t_end))
    return pd.DataFrame({"start": rows.t_arrive, "end": np.maximum(end, rows.t_end)})


def under_way(found: pd.DataFrame, window: tuple[float, float]) -> float:
    """X x cycle: ``steps`` per second that end in a window (s) times their mean length. By Little's law the
    number of steps under way."""
    gone = found[found.end.between(*window)]
    return float((gone.end - gone.start).sum()) / (window[1] - window[0])


def littles_law(programs: pd.DataFrame, calls: pd.DataFrame) -> Numbers:
    """N = X x cycle in the measured window, a program with one thread being in one step at any time.

    ``cycle_s``: mean length of the steps that end in it; ``product``: their rate times that; ``deviation``:
    product / programs in the system - 1. Only as far from 0 as the window is short: a table whose rates and
    latencies are off by more is not of one run.
    """
    start, end = window = measured_window(programs)
    if end <= start or calls.empty:
        return dict.fromkeys(("cycle_s", "product", "deviation"), math.nan)
    found = steps(programs, calls)
    gone = found[found.end.between(start, end)]
    product = under_way(found, window)
    there = in_system(programs, window)
    return {
        "cycle_s": float((gone.end - gone.start).mean()) if len(gone) else math.nan,
        "product": product,
        "deviation": product / there - 1 if there else math.nan,
    }
