"""Two numbers that bring simulated times to measured ones: ``scale`` on every step, and ms per step.

The simulator is in the loop: each try plays the recording again. The loss is the mean over the fitted rows
of ``soft L1`` of the log errors of TTFT and TPOT (E2E follows from them; it is fitted where it is all there
is): a row that is off by more than ``KNEE`` counts in proportion, not squared, so that no single one decides.

A request that just misses the start of a step jumps by a whole one, so the loss is jagged at every scale and
neither slopes nor a simplex get far. Each round tries a grid around the best so far, puts a parabola
through every log error over all tries near there, and goes to the least loss of these parabolas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import InvalidRun

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Simulate = Callable[[float, float, Rows], Array]
"""(scale, ms per step, row numbers) -> times of these rows, (rows, 3) in seconds: TTFT, TPOT, E2E."""

KNEE = 0.1
START = (1.0, 0.5)
"""Scale and ms per step that the first grid is around."""
ROUNDS = ((0.2, 2.0), (0.1, 1.0), (0.1, 1.0), (0.1, 1.0))
"""Half widths of each round's grid of three by three, in log scale and ms."""
NEAR = 1.6
"""Half widths within which a try counts in a round."""
FARTHEST = 1.5
FOLDS = 3


@dataclass(frozen=True)
class Fit:
    """``loss`` is that of a simulation with these numbers; ``evaluations`` simulations were needed."""

    scale: float
    extra_ms: float
    loss: float
    evaluations: int


def fit(simulate: Simulate, measured: Array, rows: Rows, progress: Callable[[int, int], None] | None) -> Fit:
    """Fit on ``rows`` of ``measured`` ((n, 3), seconds, NaN where missing); deterministic.

    Raises InvalidRun if nothing of these rows was measured.
    """
    tries = _Tries(simulate, measured, rows, progress)
    here = np.array([np.log(START[0]), START[1]])
    for widths in ROUNDS:
        here = tries.round(here, np.array(widths))
    scale, extra = round(float(np.exp(here[0])), 5), round(float(here[1]), 4)
    loss = float(_soft(tries.errors(float(np.log(scale)), extra)).mean())
    tries.done()
    return Fit(scale, extra, loss, len(tries.known))


def _soft(errors: Array) -> Array:
    found: Array = KNEE**2 * (np.sqrt(1.0 + (errors / KNEE) ** 2) - 1.0)
    return found


class _Tries:
    """Simulations so far: log errors of every fitted time, by (log scale, ms)."""

    def __init__(
        self, simulate: Simulate, measured: Array, rows: Rows, progress: Callable[[int, int], None] | None
    ) -> None:
        self.simulate, self.rows, self.progress = simulate, rows, progress
        self.columns = fitted_columns(measured[rows])
        self.logs = np.log(measured[rows][:, self.columns])
        self.there = np.isfinite(self.logs)
        self.known: dict[tuple[float, float], Array] = {}
        self.most = 9 * len(ROUNDS) + 1

    def errors(self, log_scale: float, extra_ms: float) -> Array:
        """Log errors of every fitted time."""
        key = (round(log_scale, 6), round(extra_ms, 5))
        if key not in self.known:
            times = self.simulate(float(np.exp(key[0])), key[1], self.rows)
            self.known[key] = (np.log(times[:, self.columns]) - self.logs)[self.there]
            if self.progress is not None:
                self.progress(len(self.known), self.most)
        return self.known[key]

    def round(self, here: Array, widths: Array) -> Array:
        """Where the parabolas around ``here`` have the least loss."""
        from scipy.optimize import least_squares

        for i, j in product((-1, 0, 1), repeat=2):
            self.errors(float(here[0] + i * widths[0]), max(0.0, float(here[1] + j * widths[1])))
        tried = np.array(list(self.known))
        apart = (tried - here) / widths
        near = (np.abs(apart) <= NEAR).all(axis=1)
        off = np.array(list(self.known.values()))[near]
        parabolas = np.linalg.lstsq(_terms(apart[near]), off, rcond=None)[0]
        least = max(-FARTHEST, -here[1] / widths[1]) - 1e-9
        found = least_squares(
            lambda u: (_terms(u[None, :]) @ parabolas)[0],
            np.zeros(2),
            bounds=([-FARTHEST, least], [FARTHEST, FARTHEST]),
            loss="soft_l1",
            f_scale=KNEE,
        )
        moved: Array = np.maximum(here + found.x * widths, [-np.inf, 0.0])
        return moved

    def done(self) -> None:
        """Take the bar away."""
        if self.progress is not None:
            self.progress(self.most, self.most)


def _terms(u: Array) -> Array:
    """1, x, y, x2, xy, y2 of every row."""
    x, y = u[:, 0], u[:, 1]
    return np.stack([np.ones(len(u)), x, y, x * x, x * y, y * y], axis=1)


def fitted_columns(measured: Array) -> list[int]:
    """TTFT and TPOT where they were measured, else E2E. Raises InvalidRun if nothing was."""
    there = [i for i in (0, 1) if np.isfinite(measured[:, i]).any()]
    if not there and not np.isfinite(measured[:, 2]).any():
        raise InvalidRun("the rows to fit on have neither TTFT, TPOT nor E2E")
    return there or [2]


def folds(rows: Sequence[int], count: int = FOLDS) -> list[tuple[Rows, Rows]]:
    """(fitted, held out) rows: fold k holds out those whose number in the file is k modulo ``count``."""
    every = np.asarray(rows, dtype=np.int64)
    return [(every[every % count != k], every[every % count == k]) for k in range(count)]


def first_part(n: int, part: float) -> tuple[Rows, Rows]:
    """(fitted, held out) row numbers: the first ``part`` of the requests by arrival, and the rest."""
    cut = round(n * part)
    return np.arange(cut), np.arange(cut, n)


def as_dict(found: Fit) -> dict[str, Any]:
    """Plain data."""
    return {
        "scale": found.scale,
        "extra_ms": found.extra_ms,
        "loss": found.loss,
        "evaluations": found.evaluations,
    }
