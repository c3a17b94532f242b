"""Comparing two sets of seeds: intervals, tests, and how many seeds a question needs.

The unit is a seed, never a program: programs of one run share its queues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.stats import Array

ALPHA = 0.05
POWER = 0.8
BOOTSTRAP_FROM = 20
"""From so many paired seeds the bootstrap replaces Student's t; of fewer it covers too little
(74, 82 and 89 % instead of 95 at 3, 5 and 8 seeds)."""
RESAMPLES = 4_999
MOST_NEEDED = 10_000
"""More seeds than this are not asked for: the answer is "more than"."""
_BLOCK = 2_000_000  # numbers drawn at a time


@dataclass(frozen=True)
class Contrast:
    """A mean effect over seeds, and how uncertain it is.

    One sample (the differences of paired seeds) or two (``spreads`` and ``sizes`` of each
    side): standard deviations and numbers of seeds. ``draws``: sorted studentised bootstrap
    means, (mean* - mean) / error*; without them intervals are Student's, with Welch's
    degrees of freedom for two samples.
    """

    mean: float
    spreads: tuple[float, ...]
    sizes: tuple[int, ...]
    draws: Array | None = None

    def _variances(self, seeds: int | None) -> list[tuple[float, int]]:
        sizes = self.sizes if seeds is None else (seeds,) * len(self.sizes)
        return [(s * s / n, n) for s, n in zip(self.spreads, sizes, strict=True)]

    def error(self, seeds: int | None = None) -> float:
        """Standard error of the mean; with ``seeds`` on each side instead of those there are."""
        return math.sqrt(math.fsum(v for v, _ in self._variances(seeds)))

    def df(self, seeds: int | None = None) -> float:
        """Degrees of freedom (Welch and Satterthwaite; n - 1 for one sample)."""
        parts = self._variances(seeds)
        bottom = math.fsum(v * v / (n - 1) for v, n in parts)
        if bottom == 0:
            return float(sum(n - 1 for _, n in parts))
        return math.fsum(v for v, _ in parts) ** 2 / bottom

    def p(self) -> float:
        """Two-sided p-value of "no effect"; 0 where every seed shows the same effect."""
        error = self.error()
        if error == 0:
            return 1.0 if self.mean == 0 else 0.0
        t = self.mean / error
        if self.draws is None:
            from scipy.special import stdtr  # scipy.stats takes a second to import

            return min(1.0, 2 * float(stdtr(self.df(), -abs(t))))
        beyond = min(int((self.draws >= t).sum()), int((self.draws <= t).sum()))
        return min(1.0, 2 * (1 + beyond) / (1 + self.draws.size))

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """The (1 - alpha) interval of the mean effect."""
        error = self.error()
        if error == 0:
            return self.mean, self.mean
        if self.draws is None:
            half = quantile_t(1 - alpha / 2, self.df()) * error
            return self.mean - half, self.mean + half
        low, high = np.quantile(self.draws, [alpha / 2, 1 - alpha / 2])
        return self.mean - float(high) * error, self.mean - float(low) * error

    def detectable(self, alpha: float = ALPHA, seeds: int | None = None) -> float:
        """The smallest effect a two-sided test at ``alpha`` finds with power 0.8."""
        df = self.df(seeds)
        return (quantile_t(1 - alpha / 2, df) + quantile_t(POWER, df)) * self.error(seeds)

    def seeds_for(self, effect: float, alpha: float = ALPHA, least: int = 2) -> int | None:
        """Seeds (on each side) from which on ``effect`` is detectable, at least ``least``.

        None if that takes more than MOST_NEEDED, or ``effect`` is 0.
        """
        if effect <= 0 or self.detectable(alpha, MOST_NEEDED) > effect:
            return None
        low, high = least, MOST_NEEDED  # detectable(high) <= effect, and it falls with the seeds
        while low < high:
            middle = (low + high) // 2
            if self.detectable(alpha, middle) <= effect:
                high = middle
            else:
                low = middle + 1
        return high


def quantile_t(share: float, df: float) -> float:
    """Quantile of Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(df, share))


def paired(differences: Sequence[float]) -> Contrast:
    """The mean of one difference per seed. Raises ValueError for fewer than 2."""
    data = _two(differences)
    mean, spread = float(data.mean()), float(data.std(ddof=1))
    if np.ptp(data) <= 1e-12 * abs(mean):  # what is left of equal values after their logarithms
        return Contrast(mean, (0.0,), (data.size,))
    draws = _studentised(data) if data.size >= BOOTSTRAP_FROM else None
    return Contrast(mean, (spread,), (data.size,), draws)


def welch(base: Sequence[float], new: Sequence[float]) -> Contrast:
    """mean(new) - mean(base) of independent seeds, variances not pooled. Raises ValueError for 1 seed."""
    a, b = _two(base), _two(new)
    spreads = float(a.std(ddof=1)), float(b.std(ddof=1))
    return Contrast(float(b.mean() - a.mean()), spreads, (a.size, b.size))


def _two(values: Sequence[float]) -> Array:
    data = np.asarray(values, dtype=np.float64)
    if data.size < 2:
        raise ValueError(f"an interval needs at least 2 seeds, got {data.size}")
    return data


def _studentised(data: Array) -> Array | None:
    """Sorted (mean* - mean) / error* of resampled seeds; the same numbers every time.

    None where so few values differ that a resample can be constant: then it says nothing.
    """
    rng = np.random.default_rng(data.size)
    rows = max(1, _BLOCK // data.size)
    parts = []
    for start in range(0, RESAMPLES, rows):
        picks = data[rng.integers(0, data.size, (min(rows, RESAMPLES - start), data.size))]
        errors = picks.std(axis=1, ddof=1) / math.sqrt(data.size)
        if not errors.all():
            return None
        parts.append((picks.mean(axis=1) - data.mean()) / errors)
    return np.sort(np.concatenate(parts))


def sign_test(differences: Sequence[float]) -> float:
    """Two-sided p-value of the sign test: as many seeds up as down? Ties do not count."""
    up, down = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    n = up + down
    tail = sum(math.comb(n, k) for k in range(min(up, down) + 1))
    return min(1.0, 2 * tail / float(2**n))


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[tuple[bool, float]]:
    """For each p-value: whether Holm's step-down rejects it, and the alpha its interval takes.

    The smallest p is held against alpha / m, the next against alpha / (m - 1), and so on up to
    the first that fails; that one's share holds for all behind it, so intervals and test agree.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found = [(False, alpha)] * len(p_values)
    rejecting, share = True, alpha
    for rank, i in enumerate(order):
        if rejecting:
            share = alpha / (len(order) - rank)
            rejecting = p_values[i] < share
        found[i] = (rejecting, share)
    return found
