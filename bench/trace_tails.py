"""Which law a quantity follows: lognormal, Weibull, or a Pareto tail, by maximum likelihood.

Whole numbers are taken as rounded ones: the likelihood of a value is the probability of its
unit interval, and distances are taken between cumulative shares at whole numbers, so that
ties (calls per program, seconds of a coarse clock) do not look like a bad fit. The tail is
that of Clauset, Shalizi and Newman (2009): the start with the smallest Kolmogorov-Smirnov
distance, the exponent by maximum likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.stats import Array

LEAST = 50
"""Fewer values are not fitted; a Pareto tail has as many."""
KEPT = 20_000
"""Distinct values the likelihood is taken over (evenly spaced in rank beyond that)."""
KS_5_PERCENT = 1.358
"""Kolmogorov's 5 % point: a distance above this / sqrt(n) refuses a law known beforehand."""
STARTS = 60
"""Starts of the tail that are tried, as quantiles from the median to the 99th percentile."""


@dataclass(frozen=True)
class Law:
    """A family of two parameters; ``free`` is what the optimiser moves (any real numbers)."""

    name: str
    parameters: tuple[str, str]
    cdf: Callable[[Array, float, float], Array]
    log_density: Callable[[Array, float, float], Array]
    start: Callable[[Array], tuple[float, float]]
    free: tuple[bool, bool]
    """Whether a parameter may be negative; the others move on a log scale."""


def _lognormal_cdf(x: Array, mu: float, sigma: float) -> Array:
    from scipy.special import ndtr

    with np.errstate(divide="ignore"):
        found: Array = ndtr((np.log(np.maximum(x, 0.0)) - mu) / sigma)
    return found


def _lognormal_density(x: Array, mu: float, sigma: float) -> Array:
    z = (np.log(x) - mu) / sigma
    found: Array = -0.5 * z * z - np.log(x * sigma) - 0.5 * math.log(2 * math.pi)
    return found


def _weibull_cdf(x: Array, k: float, scale: float) -> Array:
    found: Array = -np.expm1(-((np.maximum(x, 0.0) / scale) ** k))
    return found


def _weibull_density(x: Array, k: float, scale: float) -> Array:
    z = np.log(x / scale)
    found: Array = math.log(k / scale) + (k - 1) * z - np.exp(np.minimum(k * z, 700.0))
    return found


def _log_moments(x: Array) -> tuple[float, float]:
    logs = np.log(np.maximum(x, 0.25))
    return float(logs.mean()), max(float(logs.std()), 1e-3)


def _weibull_start(x: Array) -> tuple[float, float]:
    mu, sigma = _log_moments(x)
    k = math.pi / (sigma * math.sqrt(6.0))
    return k, math.exp(mu + 0.5772 / k)


LAWS = (
    Law("lognormal", ("mu", "sigma"), _lognormal_cdf, _lognormal_density, _log_moments, (True, False)),
    Law("weibull", ("k", "scale"), _weibull_cdf, _weibull_density, _weibull_start, (False, False)),
)


@dataclass(frozen=True)
class Sample:
    """Sorted distinct values with their counts; ``step`` is 1 for whole numbers, else 0."""

    x: Array
    count: Array
    step: float

    @staticmethod
    def of(values: Array) -> Sample:
        """The sample to fit; zeros stay only if the values are whole numbers."""
        whole = bool(np.all(values == np.round(values)))
        x, count = np.unique(values if whole else values[values > 0], return_counts=True)
        return Sample(x, count.astype(np.float64), 1.0 if whole else 0.0)

    @property
    def n(self) -> float:
        """Values in all."""
        return float(self.count.sum())

    def thinned(self) -> Sample:
        """At most KEPT distinct values, evenly spaced in rank."""
        if self.x.size <= KEPT:
            return self
        values = np.repeat(self.x, self.count.astype(int))
        ranks = ((np.arange(KEPT) + 0.5) * values.size / KEPT).astype(int)
        x, count = np.unique(values[ranks], return_counts=True)
        return Sample(x, count.astype(np.float64), self.step)


def tails(values: Array) -> dict[str, Any]:
    """Fits of one quantity: {"n", "laws": [...], "tail", "best", "note"}.

    Each law has its parameters and ``ks``; ``critical`` is KS_5_PERCENT / sqrt(n), lenient
    because the parameters come from the same values, strict where the values of one program
    resemble each other. ``best`` is the law with the smallest distance; ``holds``: whether
    that is below ``critical``.
    """
    sample = Sample.of(values)
    result: dict[str, Any] = {"n": int(values.size), "zeros": int((values == 0).sum()), "laws": []}
    if sample.n < LEAST:
        return result | {"note": f"too few values to fit ({int(sample.n)} < {LEAST})"}
    if sample.x.size < 3:
        return result | {"note": "no spread to fit: " + " or ".join(f"{v:g}" for v in sample.x)}
    laws = [fit(law, sample) for law in LAWS]
    best = min(laws, key=lambda row: row["ks"])
    critical = KS_5_PERCENT / math.sqrt(sample.n)
    return result | {
        "laws": laws,
        "tail": pareto_tail(values),
        "best": best["law"],
        "critical": critical,
        "holds": best["ks"] <= critical,
        "note": "",
    }


def fit(law: Law, sample: Sample) -> dict[str, Any]:
    """One law: its parameters by maximum likelihood and its KS distance."""
    from scipy.optimize import minimize

    kept = sample.thinned()
    start = law.start(np.repeat(kept.x, kept.count.astype(int)))
    at = [p if free else math.log(p) for p, free in zip(start, law.free, strict=True)]

    def loss(free: Any) -> float:
        return _loss(law, kept, _back(law, free))

    found = minimize(loss, at, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6, "maxiter": 400})
    values = _back(law, found.x)
    named = dict(zip(law.parameters, values, strict=True))
    return {"law": law.name, **named, "ks": ks(law, sample, values)}


def _back(law: Law, free: Any) -> tuple[float, float]:
    a, b = (
        float(f) if any_sign else math.exp(min(max(float(f), -300.0), 300.0))
        for f, any_sign in zip(free, law.free, strict=True)
    )
    return a, b


def _loss(law: Law, sample: Sample, values: tuple[float, float]) -> float:
    """Minus the mean log likelihood."""
    with np.errstate(all="ignore"):
        if sample.step:
            half = sample.step / 2
            below = law.cdf(sample.x - half, *values)
            below[0] = below[0] if sample.x[0] > 1 else 0.0  # a draw is rounded up to at least this
            p = law.cdf(sample.x + half, *values) - below
            logs = np.log(np.maximum(p, 1e-300))
        else:
            logs = np.maximum(law.log_density(sample.x, *values), -700.0)
        total = float((sample.count * logs).sum()) / sample.n
    return -total if math.isfinite(total) else 1e6


def ks(law: Law, sample: Sample, values: tuple[float, float]) -> float:
    """Largest distance between the law's and the sample's cumulative shares."""
    share = np.cumsum(sample.count) / sample.n
    if sample.step:
        return float(np.abs(law.cdf(sample.x + sample.step / 2, *values) - share).max())
    model = law.cdf(sample.x, *values)
    before = np.concatenate([[0.0], share[:-1]])
    return float(max(np.abs(model - share).max(), np.abs(model - before).max()))


def pareto_tail(values: Array) -> dict[str, float] | None:
    """{"alpha", "xmin", "share", "n", "ks", "holds"} of the tail P(X > x) ~ x**(1 - alpha).

    ``share``: of all values, how many are in it; ``holds``: not refused at 5 %. None if too short.
    """
    sample = Sample.of(values)
    if sample.n < 2 * LEAST:
        return None
    ordered = np.repeat(sample.x, sample.count.astype(int))
    places = (np.linspace(0.5, 0.99, STARTS) * ordered.size).astype(int)
    starts = np.unique(ordered[places])
    found = [_tail(ordered, sample.step, float(x)) for x in starts if x > sample.step / 2]
    usable = [row for row in found if row is not None]
    return min(usable, key=lambda row: row["ks"], default=None)


def _tail(ordered: Array, step: float, xmin: float) -> dict[str, float] | None:
    tail = ordered[np.searchsorted(ordered, xmin) :]
    low = xmin - step / 2
    logs = float(np.log(tail / low).sum())
    if tail.size < LEAST or np.unique(tail).size < 10 or logs <= 0:
        return None
    alpha = 1.0 + tail.size / logs
    x, count = np.unique(tail, return_counts=True)
    share = np.cumsum(count) / tail.size
    model = 1.0 - ((x + step / 2) / low) ** (1.0 - alpha)
    distance = np.abs(model - share).max()
    if not step:
        distance = max(distance, np.abs(model - np.concatenate([[0.0], share[:-1]])).max())
    return {
        "alpha": alpha,
        "xmin": xmin,
        "share": tail.size / ordered.size,
        "n": float(tail.size),
        "ks": float(distance),
        "holds": bool(distance <= KS_5_PERCENT / math.sqrt(tail.size)),
    }
