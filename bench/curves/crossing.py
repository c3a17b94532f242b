"""At which arrival rate a latency is reached: brackets, interpolation, and intervals over seeds.

Latency grows with the rate, steeply near saturation, so a rate at equal latency
is well determined where a latency at equal rate is not. Between two swept rates
a crossing is interpolated in logarithms; its bracket is what was really run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.stats import Estimate, t_interval

INF = math.inf
LEAST_SLOPE = 0.5
"""d ln(latency) / d ln(rate): a flatter curve gives no rate worth the name."""


class Crossing(NamedTuple):
    """Rate (programs/s) at which a curve reaches a latency; it lies in [low, high].

    ``slope``: d ln(latency) / d ln(rate) in the bracket. Never crossed: ``rate`` is the
    largest (or, above everywhere, the smallest) rate that was run, ``high`` infinite (``low`` 0).
    """

    rate: float
    low: float
    high: float
    slope: float

    @property
    def closed(self) -> bool:
        """Whether the curve was seen on both sides."""
        return self.low > 0 and self.high < INF


def crossing(curve: Mapping[float, float], latency: float) -> Crossing:
    """Where a curve {rate: latency} first exceeds ``latency`` for good.

    The bracket is the last rate at or below it and the next swept rate: a curve that dips
    again counts as crossed at its last upward step. Raises ValueError for an empty curve.
    """
    points = sorted((r, v) for r, v in curve.items() if math.isfinite(v) and v > 0)
    if not points:
        raise ValueError("a curve without points has no crossing")
    below = [i for i, (_, v) in enumerate(points) if v <= latency]
    if not below:
        return Crossing(points[0][0], 0.0, points[0][0], _edge_slope(points))
    i = below[-1]
    if i + 1 == len(points):
        return Crossing(points[i][0], points[i][0], INF, _edge_slope(points[::-1]))
    (a, v), (b, w) = points[i], points[i + 1]
    slope = math.log(w / v) / math.log(b / a)
    rate = math.exp(math.log(a) + math.log(latency / v) / slope) if slope > 0 else b
    return Crossing(rate, a, b, max(slope, LEAST_SLOPE))


def _edge_slope(points: Sequence[tuple[float, float]]) -> float:
    if len(points) < 2:
        return LEAST_SLOPE
    (a, v), (b, w) = points[0], points[1]
    return max(math.log(w / v) / math.log(b / a), LEAST_SLOPE)


def next_rate(found: Crossing, tolerance: float, most: float) -> float | None:
    """Which rate to run next to narrow a bracket to ``tolerance``; None if it is narrow.

    Outside the swept rates it goes on by half or to the half, to ``most`` at the highest;
    inside, to the middle in logarithms.
    """
    if found.high == INF:
        return min(found.low * 1.5, most) if found.low * tolerance < most else None
    if found.low == 0.0:
        return found.high / 2.0
    if found.high / found.low <= tolerance:
        return None
    return math.sqrt(found.low * found.high)


def rate_of_seed(value: float, rate: float, latency: float, found: Crossing) -> float:
    """The crossing of one seed from its latency at ``rate``, along the scanned curve's slope."""
    if not (math.isfinite(value) and value > 0):
        return math.nan
    return rate * math.exp(math.log(latency / value) / found.slope)


def ratio(better: Mapping[int, float], base: Mapping[int, float]) -> Estimate:
    """Paired ratio of rates over the common seeds: geometric mean, t interval of the logs."""
    seeds = sorted(s for s in better.keys() & base.keys() if better[s] > 0 and base[s] > 0)
    logs = t_interval([math.log(better[s] / base[s]) for s in seeds], "paired, t over seeds of log ratios")
    value, low, high = (math.exp(x) for x in logs[:3])
    return Estimate(value, low, high, logs.method, logs.note)
