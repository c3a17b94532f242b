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
NEAR = 1.4
"""Rates within this factor of a crossing say how steep the curve is there."""
FURTHEST = 1.5
"""A seed's crossing is sought within this factor of the rate it was run at."""
LEAST_SLOPE = 0.5
"""d ln(latency) / d ln(rate): a flatter curve gives no rate worth the name."""


class Crossing(NamedTuple):
    """Rate (programs/s) at which a curve reaches a latency; it lies in [low, high].

    ``slope``: d ln(latency) / d ln(rate) around it. Never crossed: ``rate`` is the
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
        return Crossing(points[0][0], 0.0, points[0][0], slope_at(points, points[0][0]))
    i = below[-1]
    if i + 1 == len(points):
        return Crossing(points[i][0], points[i][0], INF, slope_at(points, points[i][0]))
    (a, v), (b, w) = points[i], points[i + 1]
    steep = math.log(w / v) / math.log(b / a)
    rate = math.exp(math.log(a) + math.log(latency / v) / steep) if steep > 0 else b
    return Crossing(rate, a, b, slope_at(points, rate))


def slope_at(points: Sequence[tuple[float, float]], rate: float) -> float:
    """d ln(latency) / d ln(rate) around ``rate``, on the flat side of what one seed's curve says.

    A regression over the swept rates within a factor NEAR (at least the three nearest), less its
    standard error. Two neighbours alone, a few percent apart, give a slope that is mostly noise; one
    that is too steep would make every interval of rates too short.
    """
    nearest = sorted(points, key=lambda p: abs(math.log(p[0] / rate)))
    near = [p for p in nearest if abs(math.log(p[0] / rate)) <= math.log(NEAR)]
    used = near if len(near) >= 3 else nearest[:3]
    if len(used) < 2:
        return LEAST_SLOPE
    x = [math.log(r) for r, _ in used]
    y = [math.log(v) for _, v in used]
    fit, error = _line(x, y)
    return max(fit - error, LEAST_SLOPE)


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope of a least-squares line and its standard error (0 for two points)."""
    n = len(x)
    mx, my = sum(x) / n, sum(y) / n
    spread = sum((a - mx) ** 2 for a in x)
    slope = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / spread
    if n < 3:
        return slope, 0.0
    rest = sum((b - my - slope * (a - mx)) ** 2 for a, b in zip(x, y, strict=True))
    return slope, math.sqrt(rest / (n - 2) / spread)


def next_rate(found: Crossing, tolerance: float, least: float, most: float) -> float | None:
    """Which rate to run next to narrow a bracket to ``tolerance``; None if it is narrow.

    Outside the swept rates it goes on by half or to the half, from ``least`` to ``most``;
    inside, to the middle in logarithms.
    """
    if found.high == INF:
        return min(found.low * 1.5, most) if found.low < most / 1.05 else None
    if found.low == 0.0:
        return max(found.high / 2.0, least) if found.high > 1.05 * least else None
    if found.high / found.low <= tolerance:
        return None
    return math.sqrt(found.low * found.high)


def rate_of_seed(value: float, rate: float, latency: float, found: Crossing) -> float:
    """The crossing of one seed from its latency at ``rate``, along the scanned curve's slope.

    Never further than a factor FURTHEST from ``rate``: beyond, it is that bound. NaN for no latency.
    """
    if not (math.isfinite(value) and value > 0):
        return math.nan
    shift = math.log(latency / value) / found.slope
    return rate * math.exp(max(-math.log(FURTHEST), min(math.log(FURTHEST), shift)))


def ratio(better: Mapping[int, float], base: Mapping[int, float]) -> Estimate:
    """Paired ratio over the common seeds: geometric mean, t interval of the logs.

    NaN if a seed has no value: leaving it out would leave out the worst.
    """
    seeds = sorted(better.keys() & base.keys())
    if missing := [s for s in seeds if not (better[s] > 0 and base[s] > 0)]:
        return Estimate(math.nan, note=f"no value for seed {missing[0]}")
    logs = t_interval([math.log(better[s] / base[s]) for s in seeds], "paired, t over seeds of log ratios")
    value, low, high = (math.exp(x) for x in logs[:3])
    return Estimate(value, low, high, logs.method, logs.note)
