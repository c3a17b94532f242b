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

from bench.metrics import WARM_UP, Estimates, finished, seconds_per_token
from bench.stats import Estimate, batch_mean

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
