"""Two numbers that bring simulated times to measured ones: ``scale`` on every step, and ms per step.

The simulator is in the loop: each try plays the recording again. The loss is the sum over the fitted rows
of ``soft L1`` of the log errors of TTFT and TPOT (E2E follows from them; it is fitted where it is all there
is): a row that is off by more than ``KNEE`` counts in proportion, not squared, so that no single one decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
"""Scale and ms per step of the first try."""
BOUNDS = ((0.2, 0.0), (5.0, 200.0))
_STEPS = (0.01, 0.1)  # of log scale and of ms: smaller ones drown in the schedule's own jumps
_TRIES = 20
FOLDS = 3


@dataclass(frozen=True)
class Fit:
    """``loss`` is the mean over residuals of what is minimised; ``evaluations`` simulations were needed."""

    scale: float
    extra_ms: float
    loss: float
    evaluations: int


def fit(simulate: Simulate, measured: Array, rows: Rows, progress: Callable[[int, int], None] | None) -> Fit:
    """Fit on ``rows`` of ``measured`` ((n, 3), seconds, NaN where missing); deterministic.

    Raises InvalidRun if nothing of these rows was measured.
    """
    from scipy.optimize import least_squares

    tries = _Tries(simulate, measured, rows, progress)
    low, high = (np.array([np.log(b[0]), b[1]]) for b in BOUNDS)
    found = least_squares(
        tries.residuals,
        np.array([np.log(START[0]), START[1]]),
        jac=tries.slopes,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=KNEE,
        x_scale=np.array([0.1, 1.0]),
        xtol=1e-3,
        ftol=1e-4,
        max_nfev=_TRIES,
    )
    tries.done()
    scale, extra = float(np.exp(found.x[0])), float(found.x[1])
    return Fit(round(scale, 5), round(extra, 4), float(found.cost) / max(1, tries.count), len(tries.known))


class _Tries:
    def __init__(
        self, simulate: Simulate, measured: Array, rows: Rows, progress: Callable[[int, int], None] | None
    ) -> None:
        self.simulate, self.rows, self.progress = simulate, rows, progress
        self.logs = np.log(measured[rows][:, fitted_columns(measured[rows])])
        self.columns = fitted_columns(measured[rows])
        self.known: dict[tuple[float, float], Array] = {}
        self.count = int(np.isfinite(self.logs).sum())

    def residuals(self, x: Array) -> Array:
        """Log errors of every fitted time."""
        key = (float(x[0]), float(x[1]))
        if key not in self.known:
            times = self.simulate(float(np.exp(key[0])), max(0.0, key[1]), self.rows)
            self.known[key] = np.log(times[:, self.columns]) - self.logs
            if self.progress is not None:
                self.progress(len(self.known), 3 * _TRIES)
        off = self.known[key]
        chosen: Array = off[np.isfinite(self.logs)]
        return chosen

    def slopes(self, x: Array) -> Array:
        """Forward differences."""
        here = self.residuals(x)
        moved = [x + np.eye(2)[i] * step for i, step in enumerate(_STEPS)]
        return np.stack([(self.residuals(y) - here) / s for y, s in zip(moved, _STEPS, strict=True)], axis=1)

    def done(self) -> None:
        """Take the bar away."""
        if self.progress is not None:
            self.progress(3 * _TRIES, 3 * _TRIES)


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
