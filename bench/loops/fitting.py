"""The one scalar that an experiment fits: how much longer every engine step takes than its table says.

A search that is told the rate at each scale it asks for; steps/min fall with the scale, so logarithms are
nearly a line as long as steps, not tools, take the time. A rate of infinity: the programs ran out before
the window was half over, so steps are too fast; of 0: none ended in it, so they are too slow.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

from systems.latency.scaled import LEAST, MOST

TOLERANCE = 0.01
"""Relative error of steps/min at which a search ends."""
TRIES = 8


class Fitted(NamedTuple):
    """``scale`` on every step's time reaches ``got`` steps/min of ``target``, after ``tries`` runs."""

    scale: float
    got: float
    target: float
    tries: int

    @property
    def reached(self) -> bool:
        """Whether the target was met; else the scale is at a bound, tools alone take too long, or there were
        too few programs for a window."""
        return abs(_error(self.got, self.target)) <= 2 * TOLERANCE

    def __str__(self) -> str:
        got = f"{self.got:.4g} steps/min" if math.isfinite(self.got) else "no full window"
        said = f"{got} for {self.target:g} after {self.tries} tries"
        return said if self.reached else f"{said}: NOT REACHED"


def search(target: float) -> Generator[float, float, Fitted]:
    """Yields a scale, is sent steps/min there (0 to infinity), returns the best one seen. Deterministic."""
    seen: dict[float, float] = {}
    scale = 1.0
    while True:
        seen[scale] = yield scale
        best = min(seen, key=lambda s: abs(_error(seen[s], target)))
        following = _next(seen, target)
        if abs(_error(seen[best], target)) <= TOLERANCE or len(seen) >= TRIES or following in seen:
            return Fitted(best, seen[best], target, len(seen))
        scale = following


def _error(got: float, target: float) -> float:
    """ln(got / target), infinite for rates of 0 and infinity: above 0, steps are too fast."""
    return math.log(got / target) if got > 0 else -math.inf


def _next(seen: dict[float, float], target: float) -> float:
    """Where the nearest tries on both sides, or else the last power law, put the target."""
    fast = [(s, _error(x, target)) for s, x in seen.items() if x > target]
    slow = [(s, _error(x, target)) for s, x in seen.items() if x <= target]
    if fast and slow:
        (a, e), (b, f) = max(fast), min(slow)
        share = e / (e - f) if math.isfinite(e - f) else 0.5
        found = math.exp(math.log(a) + min(0.9, max(0.1, share)) * math.log(b / a))
    else:
        s, e = (fast or slow)[-1]
        found = s * math.exp(max(-math.log(4), min(math.log(4), 1.5 * e)))
    return float(f"{min(MOST, max(LEAST, found)):.3g}")


def knobs(scale: float) -> dict[str, str]:
    """A step of a table is overhead + decode + prefill: all three by one factor is the whole step by it."""
    return {f"latency.{part}": f"{scale:g}" for part in ("prefill", "decode", "overhead")}
