"""Exact tests and intervals for outcomes that are yes or no."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, NamedTuple

from bench.stats import Estimate

WILSON = "Wilson"
Key = tuple[int, str]
"""(seed, task): the same on both sides of a pair."""


class Paired(NamedTuple):
    """Programs of two runs on the same tasks. ``base_only``, ``new_only``: the discordant pairs, in order;
    ``p``: two-sided, exact (McNemar 1947); ``alone``: programs that only one side has."""

    both: int
    neither: int
    base_only: tuple[Key, ...]
    new_only: tuple[Key, ...]
    p: float
    alone: int = 0

    @property
    def pairs(self) -> int:
        """How many programs were compared."""
        return self.both + self.neither + len(self.base_only) + len(self.new_only)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        told = {name: [list(key) for key in getattr(self, name)] for name in ("base_only", "new_only")}
        return {
            **self._asdict(), **told, "pairs": self.pairs,
            "base": self.both + len(self.base_only), "new": self.both + len(self.new_only),
        }  # fmt: skip


def mcnemar(base: Mapping[Key, bool], new: Mapping[Key, bool]) -> Paired:
    """Two sides' outcomes by seed and task: pairs are what both have."""
    shared = sorted(base.keys() & new.keys())
    base_only = tuple(key for key in shared if base[key] and not new[key])
    new_only = tuple(key for key in shared if new[key] and not base[key])
    both = sum(base[key] and new[key] for key in shared)
    neither = len(shared) - both - len(base_only) - len(new_only)
    alone = len(base.keys() ^ new.keys())
    return Paired(both, neither, base_only, new_only, exact_p(len(base_only), len(new_only)), alone)


def exact_p(b: int, c: int) -> float:
    """Two-sided p of ``b`` against ``c`` discordant pairs, if either side were as likely; 1 without any."""
    n, k = b + c, min(b, c)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float(2 * tail / 2**n))


def wilson(x: int, n: int, level: float = 0.95) -> Estimate:
    """``x`` of ``n`` with Wilson's interval (Wilson 1927), which is one for 0 and ``n`` of ``n``, too."""
    if not n:
        return Estimate(math.nan, note="no programs")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, z2 = x / n, z * z / n
    middle = (share + z2 / 2) / (1 + z2)
    half = z / (1 + z2) * math.sqrt(share * (1 - share) / n + z2 / (4 * n))
    low, high = 0.0 if x == 0 else middle - half, 1.0 if x == n else middle + half
    return Estimate(share, low, high, WILSON)
