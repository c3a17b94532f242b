"""Program-level token latency at a fixed horizon: what Autellix's Fig. 12 and 13 draw.

Programs arrive during [0, H] and are then drained. Two readings (house rules of
measuring, 13): *transient at H* counts every program, *sustained* those that
arrive in [.2 H, H], and means something only where the load is sustained at all.
The gains of attained-service policies grow with H past saturation, so no number
here says anything without its H.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from bench.metrics import COMPLETE, WARM_UP, Estimates, finished, seconds_per_token
from bench.stats import BATCHES, WITHIN_RUN, Estimate, batch_mean, t_interval

KEPT = ("mean_of_ratios", "ratio_of_means", "p95", "p99")


def transient(programs: pd.DataFrame, horizon: float) -> Estimates:
    """Seconds per output token of all programs, drained, and how the horizon would cut them.

    ``finished_only``: mean of ratios over programs that end by H (flatters policies
    that starve the long ones). ``censored``: an unfinished program counts as if it
    ended at H (a lower bound). ``finished_share``: programs that end by H.
    """
    done = finished(programs)
    cut = done.copy(deep=False)
    cut["t_end"] = cut.t_end.clip(upper=horizon)
    early = done[done.t_end <= horizon]
    return {
        **_kept(done),
        "finished_only": seconds_per_token(early)["mean_of_ratios"],
        "censored": seconds_per_token(cut[cut.t_end > cut.t_arrive])["mean_of_ratios"],
        "finished_share": Estimate(len(early) / len(done) if len(done) else math.nan),
    }


def sustained(programs: pd.DataFrame, horizon: float) -> Estimates:
    """Seconds per output token of programs that arrive in [.2 H, H], drained."""
    done = finished(programs)
    return _kept(done[done.t_arrive.between(WARM_UP * horizon, horizon)])


def keeps_up(calls: pd.DataFrame, engine: pd.DataFrame, horizon: float) -> Estimates:
    """Is the load sustained at this horizon (rule 13)? In [.2 H, H], over *calls*.

    ``waiting_growth_per_s``: calls that wait, by the engines' samples, per second; its interval is
    that of the changes between the means of 16 equal spans. ``calls_share``: calls that ended over
    calls that came. ``kept_up``: 0 where the growth is above 0 or the share below 98 %; 1 where
    the growth is at most 2 % of the calls that come (its interval's upper end); NaN, unclear, between.
    Programs in the system grow for as long as the longest lasts, queue or no queue; calls that
    wait grow only where the engines do not keep up.
    """
    window = (WARM_UP * horizon, horizon)
    came = int(calls.t_arrive.between(*window).sum())
    share = float(calls.t_end.between(*window).sum()) / came if came else math.nan
    waiting = engine.groupby("time").waiting.sum()
    waiting = waiting[(waiting.index >= window[0]) & (waiting.index <= window[1])]
    if len(waiting) < BATCHES or not came:
        note = f"n too small ({len(waiting)} samples, {came} calls in the window)"
        unknown = Estimate(math.nan, note=note)
        return {
            "waiting_growth_per_s": unknown,
            "calls_share": Estimate(share, note=note),
            "kept_up": unknown,
        }
    means = [float(part.mean()) for part in np.array_split(waiting.to_numpy(dtype=np.float64), BATCHES)]
    growth = t_interval((np.diff(means) / ((window[1] - window[0]) / BATCHES)).tolist(), WITHIN_RUN)
    most = (1 - COMPLETE) * came / (window[1] - window[0])
    kept = Estimate(float(share >= COMPLETE and not growth.low > 0))
    if kept.value and growth.high > most:
        kept = Estimate(math.nan, note="the number of waiting calls varies too much to tell")
    return {"waiting_growth_per_s": growth, "calls_share": Estimate(share), "kept_up": kept}


def _kept(done: pd.DataFrame) -> Estimates:
    numbers = seconds_per_token(done)
    return {name: numbers[name] for name in KEPT}


def of_kinds(programs: pd.DataFrame, horizon: float) -> dict[str, Estimate]:
    """``KIND.transient.mean_of_ratios`` and ``.wait_s`` where a set has several kinds of program.

    In a mixed set the mean of ratios is dominated by programs with few tokens.
    """
    done = finished(programs)
    groups = {str(kind): part for kind, part in done.groupby("kind", observed=True)}
    if len(groups) < 2:
        return {}
    found: dict[str, Estimate] = {}
    for kind, part in groups.items():
        numbers = transient(part, horizon)
        found |= {f"{kind}.transient.{name}": numbers[name] for name in ("mean_of_ratios", "ratio_of_means")}
        found[f"{kind}.wait_s"] = batch_mean(np.asarray(part.wait_s, dtype=np.float64))
    return found


def last_arrival(programs: pd.DataFrame) -> float:
    """The horizon of a run that was given none: its last arrival (s)."""
    return float(programs.t_arrive.max()) if len(programs) else 0.0
