"""Intervals, and when there is not enough data for a number.

Programs of one run share queues, so they are not independent: within a run an
interval comes from batches of programs in arrival order, never from an iid
bootstrap. It describes that run; verdicts compare at least 8 seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BATCHES = 16
FLOORS = {0.5: 10, 0.9: 64, 0.95: 130, 0.99: 662}
"""Least number of observations for a percentile (house rules of measuring, rule 9)."""
TAIL = 0.95
FEWEST = 2 * BATCHES
"""Least number of programs for an interval inside a run, and for a high percentile of their calls."""
VERDICT_SEEDS = 8
WITHIN_RUN = "within-run, batch means"
OVER_SEEDS = "t over seeds"


class Estimate(NamedTuple):
    """A number with its 95 % interval; ``low`` and ``high`` are NaN when there is none.

    ``note`` says why a number or its interval is missing ("n too small (40 < 130)").
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    method: str = ""
    note: str = ""


def t_factor(df: int, level: float = 0.95) -> float:
    """Two-sided Student factor."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return float(stdtrit(df, 0.5 + level / 2))


def t_interval(values: Sequence[float], method: str = OVER_SEEDS) -> Estimate:
    """Mean of independent values (one per seed, or per batch) with a t interval."""
    data = np.asarray([v for v in values if math.isfinite(v)], dtype=np.float64)
    if data.size == 0:
        return Estimate(math.nan, note="no data")
    mean = float(data.mean())
    if data.size < 2:
        return Estimate(mean, note="one value, no interval")
    half = t_factor(data.size - 1) * float(data.std(ddof=1)) / math.sqrt(data.size)
    return Estimate(mean, mean - half, mean + half, method)


def batches(n: int, count: int = BATCHES) -> list[slice]:
    """``n`` arrival-ordered observations in ``count`` runs of equal length (up to one)."""
    edges = [round(i * n / count) for i in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]


def batch_mean(values: Array) -> Estimate:
    """Mean of arrival-ordered values; the interval from batch means."""
    return batch_ratio(values, np.ones_like(values))


def batch_ratio(top: Array, bottom: Array) -> Estimate:
    """sum(top) / sum(bottom) over arrival-ordered observations.

    Interval: delete-one-batch jackknife (for equal batches and bottom = 1
    this is exactly the batch-means interval).
    """
    if top.size == 0 or bottom.sum() == 0:
        return Estimate(math.nan, note="no data")
    value = float(top.sum() / bottom.sum())
    if top.size < FEWEST:
        return Estimate(value, note=f"no interval (n {top.size} < {FEWEST})")
    parts = batches(top.size)
    tops = np.array([top[p].sum() for p in parts])
    bottoms = np.array([bottom[p].sum() for p in parts])
    return _jackknife(value, (tops.sum() - tops) / (bottoms.sum() - bottoms))


def _jackknife(value: float, without: Array) -> Estimate:
    k = without.size
    error = math.sqrt((k - 1) / k * float(((without - without.mean()) ** 2).sum()))
    half = t_factor(k - 1) * error
    return Estimate(value, value - half, value + half, WITHIN_RUN)


def too_small(n: int, q: float, programs: int = FEWEST) -> str:
    """Why ``n`` observations of so many ``programs`` do not give percentile ``q``; empty if they do.

    Calls of one program resemble each other: the tail of few programs' calls is that of
    the programs drawn, however many calls there are.
    """
    floor = FLOORS.get(q, math.ceil(6.65 / -math.log(q)))
    if n < floor:
        return f"n too small ({n} < {floor})"
    return f"n too small ({programs} programs < {FEWEST})" if q >= TAIL and programs < FEWEST else ""


def batch_quantile(groups: Sequence[Array], q: float) -> Estimate:
    """Percentile ``q`` of the values of arrival-ordered programs (one array each).

    Interval: the spread of the empirical distribution at the percentile over
    batches of programs (a batch is one unit, so dependence inside a batch is
    kept), carried back to the values. Where that goes beyond the largest value the
    data give no upper end: ``high`` is infinite. Below the floors, of values and (for
    p95 and above) of programs: no number at all.
    """
    values = np.sort(np.concatenate(groups)) if groups else np.empty(0)
    if note := too_small(values.size, q, len(groups)):
        return Estimate(math.nan, note=note)
    value = float(np.quantile(values, q))
    if len(groups) < FEWEST:
        return Estimate(value, note=f"no interval ({len(groups)} programs < {FEWEST})")
    below = np.array([float((g <= value).sum()) for g in groups])
    sizes = np.array([float(g.size) for g in groups])
    half = _half_width(batch_ratio(below, sizes), q, values.size)
    low, high = np.quantile(values, [max(0.0, q - half), min(1.0, q + half)])
    if q + half >= 1.0:
        return Estimate(value, float(low), math.inf, WITHIN_RUN, "no upper end: the tail is in few batches")
    return Estimate(value, float(low), float(high), WITHIN_RUN)


def _half_width(share: Estimate, q: float, n: int) -> float:
    """At least the binomial half width: a lucky set of batches is no certainty."""
    iid = t_factor(BATCHES - 1) * math.sqrt(q * (1 - q) / n)
    return max((share.high - share.low) / 2, iid)
