"""How far simulated times are from measured ones: statistics, with intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems.latency.calibration import BAND, HeldOut

Array = NDArray[np.float64]

METRICS = ("TTFT", "TPOT", "E2E")
"""Columns of a table of times, seconds."""
RESAMPLES = 2000
BLOCKS = 30
"""Requests of one run share queues: a bootstrap draws runs of neighbours, about so many in a recording."""


@dataclass(frozen=True)
class Spread:
    """A fraction and its 95 % interval."""

    value: float
    low: float
    high: float

    def percent(self) -> tuple[float, float]:
        """The interval in percent."""
        return 100 * self.low, 100 * self.high

    def __str__(self) -> str:
        return f"{self.value:.2%} ({self.low:.2%} .. {self.high:.2%})"


@dataclass(frozen=True)
class Errors:
    """Relative errors of one metric over ``n`` rows, simulated against measured.

    ``mean``, ``median``, ``p90`` and ``largest`` are of their sizes; ``of_means`` compares the two
    means, with its sign.
    """

    metric: str
    n: int
    mean: Spread
    median: Spread
    of_means: Spread
    largest: float
    p90: float

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def errors(simulated: Array, measured: Array, block: int = 0, seed: int = 1) -> list[Errors]:
    """One entry for each metric that was measured.

    ``simulated``, ``measured``: (rows, 3), seconds, NaN where missing. ``block``: neighbours that are drawn
    together by the bootstrap; 0 for about ``BLOCKS`` blocks, 1 where rows are independent.
    """
    found = []
    for column, metric in enumerate(METRICS):
        there = np.isfinite(simulated[:, column]) & np.isfinite(measured[:, column])
        if there.any():
            found.append(_of(metric, simulated[there, column], measured[there, column], block, seed))
    return found


def _of(metric: str, simulated: Array, measured: Array, block: int, seed: int) -> Errors:
    n = len(measured)
    off = np.abs(simulated / measured - 1.0)
    draws = _draws(n, block or max(1, n // BLOCKS), seed)

    def spread(statistic: Callable[[NDArray[np.int64]], Array]) -> Spread:
        low, high = np.quantile(statistic(draws), [0.025, 0.975])
        (value,) = statistic(np.arange(n)[None, :])
        return Spread(float(value), float(low), float(high))

    return Errors(
        metric,
        n,
        spread(lambda rows: off[rows].mean(axis=1)),
        spread(lambda rows: np.median(off[rows], axis=1)),
        spread(lambda rows: simulated[rows].mean(axis=1) / measured[rows].mean(axis=1) - 1.0),
        float(off.max()),
        float(np.quantile(off, 0.9)),
    )


def _draws(n: int, block: int, seed: int) -> NDArray[np.int64]:
    """Row numbers, one line per resample: runs of ``block`` neighbours, wrapped around."""
    rng = np.random.default_rng(seed)
    runs = -(-n // block)
    starts = rng.integers(0, n, size=(RESAMPLES, runs))
    found: NDArray[np.int64] = (starts[:, :, None] + np.arange(block)) % n
    return found.reshape(RESAMPLES, -1)[:, :n]


def held_out(found: list[Errors], where: str) -> tuple[HeldOut, ...]:
    """What a calibration says of itself: mean size, for TTFT, whose tail is long, the median; and the p90."""
    kept = []
    for one in found:
        name, size = ("median", one.median) if one.metric == "TTFT" else ("mean", one.mean)
        for statistic, error in ((name, size.value), (BAND, one.p90)):
            kept.append(HeldOut(one.metric, statistic, round(float(error), 5), one.n, where))
    return tuple(kept)
