"""Whether the load that was sent is the load that was asked for: its rate, and the gaps between arrivals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATE_TOLERANCE = 0.02
SLACK_S = 0.020
"""A run of under a second may be longer by so much: no rate is told from it more exactly."""
RESOLUTION_S = 0.001, 0.020
"""Gaps that differ by less than a tenth of the mean gap are equal, but within these bounds: event loops have
timers of a millisecond, and traces have many arrivals at one time, which no driver sends at one time."""
P_LIMIT = 0.01

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Delivered:
    """Of ``arrivals`` programs: rates per second, asked for and sent, and the two-sample Kolmogorov-Smirnov
    test of the gaps between arrivals, sent against scheduled (distance and p). ``late_s``: by how much the
    time from the first to the last one was longer.

    The samples are paired, so that p is far above P_LIMIT unless the driver bent the distribution.
    """

    arrivals: int
    asked_per_s: float
    sent_per_s: float
    distance: float
    p: float
    late_s: float

    @classmethod
    def of(cls, scheduled: Sequence[float], sent: Sequence[float]) -> Delivered | None:
        """From times (s), program by program; None of fewer than two, or all at once: they have no rate."""
        if len(set(scheduled)) < 2:
            return None
        asked, real = np.sort(np.asarray(scheduled, np.float64)), np.sort(np.asarray(sent, np.float64))
        spans = float(asked[-1] - asked[0]), float(real[-1] - real[0])
        gaps = len(asked) - 1
        resolution = min(max(0.1 * spans[0] / gaps, RESOLUTION_S[0]), RESOLUTION_S[1])
        distance = ks_distance(np.diff(asked), np.diff(real), resolution)
        rates = [gaps / span if span else 0.0 for span in spans]
        p = ks_p(distance, gaps, gaps)
        return cls(len(asked), rates[0], rates[1], distance, p, spans[1] - spans[0])

    @property
    def rate_holds(self) -> bool:
        """Within 2 %."""
        span = (self.arrivals - 1) / self.asked_per_s
        return abs(self.late_s) <= max(RATE_TOLERANCE * span, SLACK_S)

    @property
    def verdict(self) -> str:
        """ok or invalid."""
        return "ok" if self.rate_holds and self.p >= P_LIMIT else "invalid"

    def __str__(self) -> str:
        rates = f"{self.sent_per_s:.3g} programs/s sent of {self.asked_per_s:.3g} in the arrivals as drawn"
        return f"{rates}, gaps between them KS {self.distance:.2f} (p {self.p:.2g})"


def ks_distance(first: Floats, second: Floats, resolution: float = 0.0) -> float:
    """The largest difference of two distributions of samples that no shift by ``resolution`` explains."""
    return max(_above(first, second, resolution), _above(second, first, resolution), 0.0)


def _above(one: Floats, other: Floats, shift: float) -> float:
    """How far the first distribution gets above the other one, moved to the left by ``shift``."""
    one, other = np.sort(one), np.sort(other)
    ranks = np.searchsorted(one, one, side="right") / len(one)
    return float(np.max(ranks - np.searchsorted(other, one + shift, side="right") / len(other)))


def ks_p(distance: float, n: int, m: int) -> float:
    """Probability of at least this distance between samples of one distribution (Kolmogorov's limit)."""
    x = distance * math.sqrt(n * m / (n + m))
    if x < 0.2:
        return 1.0  # 1 - 1e-12; the series below converges badly there
    terms = ((-1.0) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms)))
