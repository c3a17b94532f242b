"""Means over seeds with 95 % Student intervals: the only statistics that reports compute.

The same rule as the rest of the project (docs/metrics.md, over seeds); a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, low and high of one value per seed; low and high are NaN below two values.

    NaN anywhere (a seed without the number) makes the mean NaN: it would be over other seeds
    than its neighbours.
    """
    data = np.asarray(values, dtype=np.float64)
    if not data.size or not np.isfinite(data).all():
        return math.nan, math.nan, math.nan
    mean = float(data.mean())
    if data.size < 2:
        return mean, math.nan, math.nan
    from scipy.special import stdtrit

    half = float(stdtrit(data.size - 1, 0.975)) * float(data.std(ddof=1)) / math.sqrt(data.size)
    return mean, mean - half, mean + half


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios, one per seed, with the t interval of their logarithms."""
    data = np.asarray(ratios, dtype=np.float64)
    if not data.size or not (np.isfinite(data) & (data > 0)).all():
        return math.nan, math.nan, math.nan
    mean, low, high = (math.exp(v) for v in interval(np.log(data).tolist()))
    return mean, low, high


def over_seeds(frame: pd.DataFrame, keys: Sequence[str], column: str) -> pd.DataFrame:
    """One row per ``keys``: ``value``, ``low``, ``high`` of ``column``, and the number of ``seeds``;
    keys in the order in which they come."""
    rows = []
    for values, part in frame.groupby(list(keys), sort=False, observed=True, dropna=False):
        value, low, high = interval(part[column].tolist())
        keyed = dict(zip(keys, values, strict=True))
        rows.append(keyed | {"value": value, "low": low, "high": high, "seeds": len(part)})
    return pd.DataFrame(rows, columns=[*keys, "value", "low", "high", "seeds"])
