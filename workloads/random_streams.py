"""Keyed random numbers, and the distributions a workload's TOML may name.

A stream is a pure function of its key and a counter: draw ``n`` is the hash of
(key, n). Every draw uses exactly one count, whatever its distribution, so a
changed parameter never shifts the draws of another quantity, thread or program
(common random numbers, measuring rule 7).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import TypeVar

from vocabulary import INF
from workloads.base import WorkloadError
from workloads.keys import key_of, mix

T = TypeVar("T")
_standard_normal = NormalDist().inv_cdf


@lru_cache(maxsize=256)
def _tag(name: str) -> int:
    return key_of("stream", name)


def stream(key: int, name: str) -> Stream:
    """The stream of one quantity (``"output"``) of one thread (its session key)."""
    return Stream(key ^ _tag(name))


class Stream:
    """Random numbers of one key; no state but the count of draws."""

    __slots__ = ("drawn", "key")

    def __init__(self, key: int) -> None:
        self.key = key
        self.drawn = 0

    def bits(self) -> int:
        """64 random bits."""
        n = self.drawn
        self.drawn = n + 1
        return mix(self.key, n)

    def uniform(self) -> float:
        """In the open interval (0, 1)."""
        return ((self.bits() >> 12) + 0.5) * 2.0**-52

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> float:
        """Normal by inversion."""
        return mean + sd * _standard_normal(self.uniform())

    def lognormal(self, mu: float, sigma: float) -> float:
        """exp of a normal; ``mu`` and ``sigma`` are of natural logs."""
        return math.exp(self.normal(mu, sigma))

    def weibull(self, k: float, scale: float) -> float:
        """Weibull of shape ``k``."""
        return float(scale * (-math.log(self.uniform())) ** (1.0 / k))

    def exponential(self, mean: float) -> float:
        """Exponential by its mean."""
        return -mean * math.log(self.uniform())

    def gamma(self, shape: float, scale: float) -> float:
        """Gamma by rejection (Marsaglia and Tsang 2000), from a stream of its own."""
        own = Stream(self.bits())
        boost = 1.0 if shape >= 1.0 else own.uniform() ** (1.0 / shape)
        d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
        while True:
            x = own.normal()
            v = (1.0 + x / math.sqrt(9.0 * d)) ** 3
            if v > 0.0 and math.log(own.uniform()) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return scale * boost * d * v

    def bernoulli(self, p: float) -> bool:
        """True with probability ``p``."""
        return self.uniform() < p

    def binomial(self, n: int, p: float) -> int:
        """Successes in ``n`` trials."""
        own = Stream(self.bits())
        return sum(own.uniform() < p for _ in range(n))

    def below(self, n: int) -> int:
        """An integer in 0..n-1."""
        return int(self.uniform() * n)

    def choice(self, items: Sequence[T]) -> T:
        """One of ``items``, each as likely."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """``items`` in a random order (Fisher and Yates)."""
        own, result = Stream(self.bits()), list(items)
        for i in range(len(result) - 1, 0, -1):
            j = own.below(i + 1)
            result[i], result[j] = result[j], result[i]
        return result


@dataclass(frozen=True, slots=True)
class Dist:
    """A distribution of a TOML table; draws are clipped to [low, high].

    ``scale`` multiplies what is drawn *after* clipping (``token_scale``).
    """

    draw: Callable[[Stream], float]
    low: float = -INF
    high: float = INF
    scale: float = 1.0

    def value(self, source: Stream) -> float:
        """One draw."""
        return min(max(self.draw(source), self.low), self.high) * self.scale

    def count(self, source: Stream) -> int:
        """One draw, rounded to the nearest integer (flooring would shift means by 7 %)."""
        return math.floor(self.value(source) + 0.5)

    def tokens(self, source: Stream) -> int:
        """One draw as a number of tokens: rounded, at least 1."""
        return max(1, self.count(source))

    @property
    def most_tokens(self) -> int:
        """No draw of ``tokens`` is more; 2**40 where nothing bounds it."""
        return max(1, math.floor(self.high * self.scale + 0.5)) if self.high < 1e9 else 1 << 40

    def scaled(self, factor: float) -> Dist:
        """The same draws, times ``factor``."""
        return replace(self, scale=self.scale * factor)


def parse_dist(table: object, where: str) -> Dist:
    """The distribution of a TOML table such as {dist="lognormal", mu=1, sigma=.5, min=1}.

    A plain number is a constant. Raises WorkloadError naming the field.
    """
    if isinstance(table, (int, float)) and not isinstance(table, bool):
        table = {"dist": "constant", "value": table}
    if not isinstance(table, Mapping):
        raise WorkloadError(f"{where}: expected a number or a table with dist=..., got {table!r}")
    kind = table.get("dist")
    if kind not in KINDS:
        raise WorkloadError(f"{where}.dist: {kind!r} is not one of {', '.join(sorted(KINDS))}")
    unknown = sorted(set(table) - set(fields_of(str(kind))))
    if unknown:
        known = ", ".join(fields_of(str(kind)))
        raise WorkloadError(f"{where}.{unknown[0]}: not a field of {kind}, which has {known}")
    low = _number(table, "min", where, default=-INF)
    high = _number(table, "max", where, default=INF)
    if low > high:
        raise WorkloadError(f"{where}: min ({low:g}) is above max ({high:g})")
    draw = KINDS[str(kind)][1](table, where)
    if kind == "constant":  # a bound others can rely on
        low = high = min(max(_number(table, "value", where), low), high)
    return Dist(draw, low, high)


def fields_of(kind: str) -> list[str]:
    """The fields a table of this kind may have."""
    return ["dist", *KINDS[kind][0], "min", "max", "source"]


def _number(
    table: Mapping[str, object], name: str, where: str, *, default: float | None = None, above: float = -INF
) -> float:
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise WorkloadError(f"{where}.{name}: expected a number, got {value!r}")
    if default is None and math.isinf(value):
        raise WorkloadError(f"{where}.{name}: expected a finite number, got {value!r}")
    if value <= above > -INF:
        raise WorkloadError(f"{where}.{name}: must be above {above:g}, got {value:g}")
    return float(value)


def _not_negative(table: Mapping[str, object], name: str, where: str) -> float:
    value = _number(table, name, where)
    if value < 0:
        raise WorkloadError(f"{where}.{name}: must not be negative, got {value:g}")
    return value


def _constant(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    value = _number(table, "value", where)

    def draw(source: Stream) -> float:
        source.drawn += 1
        return value

    return draw


def _uniform(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    low, high = _number(table, "low", where), _number(table, "high", where)
    if low > high:
        raise WorkloadError(f"{where}: low ({low:g}) is above high ({high:g})")
    return lambda source: low + (high - low) * source.uniform()


def _uniform_int(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    low, high = _number(table, "low", where), _number(table, "high", where)
    if low > high or not (low.is_integer() and high.is_integer()):
        raise WorkloadError(f"{where}: low and high must be integers, low <= high; got {low:g}, {high:g}")
    return lambda source: low + source.below(int(high - low) + 1)


def _normal(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    mean, sd = _number(table, "mean", where), _not_negative(table, "sd", where)
    return lambda source: source.normal(mean, sd)


def _lognormal(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    mu, sigma = _number(table, "mu", where), _not_negative(table, "sigma", where)
    if abs(mu) + 10 * sigma > 700:
        raise WorkloadError(f"{where}: mu and sigma are of natural logs; {mu:g} and {sigma:g} overflow")
    return lambda source: source.lognormal(mu, sigma)


def _lognormal_pareto(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    """Lognormal below ``xmin``; with probability ``tail`` Pareto of ``alpha`` above it."""
    mu, sigma = _number(table, "mu", where), _number(table, "sigma", where, above=0)
    xmin, alpha = _number(table, "xmin", where, above=0), _number(table, "alpha", where, above=0)
    tail = _not_negative(table, "tail", where)
    if tail >= 1:
        raise WorkloadError(f"{where}.tail: must be a probability below 1, got {tail:g}")
    below = NormalDist(mu, sigma).cdf(math.log(xmin))
    if below <= 0:
        raise WorkloadError(f"{where}.xmin: the lognormal has nothing below {xmin:g}")

    def draw(source: Stream) -> float:
        u = source.uniform()
        if u < 1.0 - tail:
            return math.exp(mu + sigma * _standard_normal(u / (1.0 - tail) * below))
        return float(xmin * ((1.0 - u) / tail) ** (-1.0 / alpha))

    return draw


def _weibull(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    k, scale = _number(table, "k", where, above=0), _number(table, "scale", where, above=0)
    return lambda source: source.weibull(k, scale)


def _gamma(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    shape, scale = _number(table, "shape", where, above=0), _number(table, "scale", where, above=0)
    return lambda source: source.gamma(shape, scale)


def _exponential(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    mean = _number(table, "mean", where, above=0)
    return lambda source: source.exponential(mean)


def _empirical(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    values, weights = _probabilities(table, "p", where)
    total = sum(weights)
    if abs(total - 1.0) > 1e-3:
        raise WorkloadError(f"{where}.p: probabilities must sum to 1, got {total:g}")

    def draw(source: Stream) -> float:
        u = source.uniform() * total
        for value, weight in zip(values, weights, strict=True):
            u -= weight
            if u < 0:
                return value
        return values[-1]

    return draw


def _hazard(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    steps, hazards = _probabilities(table, "by_step", where)
    if hazards[-1] != 1.0:
        raise WorkloadError(f"{where}.by_step.{steps[-1]:g}: the last hazard must be 1, got {hazards[-1]:g}")

    def draw(source: Stream) -> float:
        u, survival = source.uniform(), 1.0
        for step, hazard in zip(steps, hazards, strict=True):
            survival *= 1.0 - hazard
            if u >= survival:
                return step
        return steps[-1]

    return draw


def _quantiles(table: Mapping[str, object], where: str) -> Callable[[Stream], float]:
    levels, values = _points(table.get("at"), f"{where}.at")
    if levels[0] != 0.0 or levels[-1] != 100.0 or any(a > b for a, b in pairwise(values)):
        raise WorkloadError(f"{where}.at: expected rising values at levels 0 to 100 (%), got {table['at']!r}")

    def draw(source: Stream) -> float:
        u = 100.0 * source.uniform()
        i = bisect_right(levels, u)
        below, above = levels[i - 1], levels[i]
        return values[i - 1] + (values[i] - values[i - 1]) * (u - below) / (above - below)

    return draw


def _points(pairs: object, where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A {number = number} table, in order of the first."""
    if not isinstance(pairs, Mapping) or not pairs:
        raise WorkloadError(f"{where}: expected a table of number = number, got {pairs!r}")
    result = {}
    for text in pairs:
        value = _number(pairs, text, where)
        try:
            result[float(text)] = value
        except ValueError:
            raise WorkloadError(f"{where}: {text!r} is not a number") from None
    levels = tuple(sorted(result))
    return levels, tuple(result[level] for level in levels)


def _probabilities(
    table: Mapping[str, object], name: str, where: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A {value = probability} table, in order of value."""
    values, weights = _points(table.get(name), f"{where}.{name}")
    for value, p in zip(values, weights, strict=True):
        if not 0.0 <= p <= 1.0:
            raise WorkloadError(f"{where}.{name}.{value:g}: must be a probability, got {p:g}")
    return values, weights


_Parse = Callable[[Mapping[str, object], str], Callable[[Stream], float]]
KINDS: dict[str, tuple[tuple[str, ...], _Parse]] = {
    "constant": (("value",), _constant),
    "uniform": (("low", "high"), _uniform),
    "uniform_int": (("low", "high"), _uniform_int),
    "normal": (("mean", "sd"), _normal),
    "lognormal": (("mu", "sigma"), _lognormal),
    "lognormal_pareto": (("mu", "sigma", "xmin", "alpha", "tail"), _lognormal_pareto),
    "weibull": (("k", "scale"), _weibull),
    "gamma": (("shape", "scale"), _gamma),
    "exponential": (("mean",), _exponential),
    "empirical": (("p",), _empirical),
    "hazard": (("by_step",), _hazard),
    "quantiles": (("at",), _quantiles),
}
"""Distributions by their name in TOML: their fields, and how they are read."""
