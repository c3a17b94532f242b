"""What a study is made of: finished cells as points, and what they say about a rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bench.config import RunConfig
from bench.run import RunResult

KEPT_UP = "sustained.kept_up"


class RunCells(Protocol):
    """Runs cells, on all cores; results in the order of ``configs``. Raises BenchError."""

    def __call__(self, configs: Sequence[RunConfig], phase: str) -> list[RunResult]:
        """``phase`` says in a word what the cells are for."""


@dataclass(frozen=True)
class Point:
    """One finished cell of the experiment. ``rate`` in programs/s, ``horizon`` in seconds."""

    load: str
    system: str
    rate: float
    seed: int
    horizon: float
    summary: Mapping[str, Any]
    folder: Path

    def value(self, metric: str) -> float:
        """A number of the summary by its flat name; NaN where it is missing."""
        found = self.summary["metrics"].get(metric, {}).get("value")
        return float("nan") if found is None else float(found)


class Bracket(NamedTuple):
    """Highest sustained rate lies in [low, high) (programs/s), found on ``seeds`` seeds."""

    low: float
    high: float
    seeds: int

    @property
    def middle(self) -> float:
        """In logarithms; an end that is open leaves the other one."""
        if self.low <= 0 or self.high == math.inf:
            return self.high if self.low <= 0 else self.low
        return math.sqrt(self.low * self.high)


def sustainable(points: Sequence[Point]) -> bool:
    """Whether a rate is sustained: in more than half of its seeds the engines keep up
    (``sustained.kept_up``; unknown counts as no)."""
    return 2 * sum(p.value(KEPT_UP) == 1.0 for p in points) > len(points)


def neat(rate: float) -> float:
    """Four digits: the same point has the same address whichever way it was computed."""
    return float(f"{rate:.4g}")
