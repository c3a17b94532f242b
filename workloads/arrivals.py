"""When programs arrive: seconds on the time grid, from 0.

Arrival times have a key of their own: no change of a program moves an arrival,
and no change of the rate changes a program. A closed loop needs no times.

A kind of arrivals is a text:

=================  ===========================================================
``poisson``        gaps are exponential (CV 1): the paper's
``gamma:cv=3``     gaps are gamma with this coefficient of variation
``weibull:cv=2``   gaps are Weibull with this coefficient of variation
``ramp:to=2.5``    Poisson whose rate goes in a straight line from ``rate`` to
                   2.5 times ``rate`` over the horizon, or over ``over=`` s
=================  ===========================================================

The mean rate is exact for every CV, and the same seed at another rate gives the same
times, stretched. The first gap starts at 0 for every kind: large CVs start with what a
new gap looks like, not with the middle of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vocabulary import on_grid
from workloads.base import ProgramSpec, WorkloadError
from workloads.keys import key_of
from workloads.parameters import nearest
from workloads.random_streams import Stream, stream

LONGEST = 2.0**20
"""No horizon is longer (seconds; 12 days)."""
CV_RANGE = (0.01, 100.0)
MOST = 10_000_000
"""More arrivals than this are refused: they are a mistake in the rate or the horizon."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A kind of arrivals: ``poisson``, ``gamma``, ``weibull`` or ``ramp``.

    ``cv`` is that of the gaps; ``to`` the final rate of a ramp as a multiple of the first,
    reached after ``over`` seconds (None: at the horizon).
    """

    kind: str = "poisson"
    cv: float = 1.0
    to: float = 1.0
    over: float | None = None

    def __str__(self) -> str:
        """In words, for a result's load line: "gamma, CV 3"."""
        if self.kind == "ramp":
            over = "" if self.over is None else f" over {self.over:g} s"
            return f"Poisson, rate rising to x{self.to:g}{over}" if self.to >= 1 else (
                f"Poisson, rate falling to x{self.to:g}{over}"
            )  # fmt: skip
        return "Poisson" if self.kind == "poisson" else f"{self.kind}, CV {self.cv:g}"


_FIELDS = {"poisson": (), "gamma": ("cv",), "weibull": ("cv",), "ramp": ("to", "over")}


def parse(text: str) -> Arrivals:
    """A kind of arrivals from its text. Raises WorkloadError saying what would be right."""
    kind, _, rest = text.partition(":")
    if kind not in _FIELDS:
        raise WorkloadError(f"arrivals {text!r}: {nearest(kind, _FIELDS)}")
    known = _FIELDS[kind]
    values: dict[str, float] = {}
    for item in rest.split(",") if rest else ():
        name, equals, number = item.partition("=")
        if name not in known or not equals:
            has = f"has {' and '.join(f'{k}=' for k in known)}" if known else "has no parameter"
            raise WorkloadError(f"arrivals {text!r}: {item!r} is not known; {kind} {has}")
        if name in values:
            raise WorkloadError(f"arrivals {text!r}: {name} is given twice")
        values[name] = _number(number, name, text)
    if known and known[0] not in values:
        raise WorkloadError(f"arrivals {text!r}: {kind} needs {known[0]}=, such as {kind}:{known[0]}=2")
    return Arrivals(kind, **values)


def _number(number: str, name: str, text: str) -> float:
    low, high = CV_RANGE if name == "cv" else (1e-6, 1e6)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise WorkloadError(
            f"arrivals {text!r}: {name} must be a number from {low:g} to {high:g}, got {number!r}"
        )
    return value


def times(
    kind: str, rate: float, seed: int, *, n: int | None = None, horizon: float | None = None
) -> list[float]:
    """Arrival times in seconds: ``n`` of them, or all before ``horizon`` seconds, or both.

    ``rate`` is in programs per second (of a ramp: at its start). The first ``n`` of a horizon
    are the ``n``; only a ramp without ``over`` depends on the horizon, which is then the time in
    which ``n`` are expected if none is given. A time is before the horizon before it is rounded to the grid.
    Raises WorkloadError for a bad kind, rate, ``n``
    or horizon, and ValueError if time runs off the grid.
    """
    arrivals = parse(kind)
    _check(rate, n, horizon)
    result: list[float] = []
    if n == 0:
        return result
    for time in _stretched(arrivals, rate, seed, n, horizon):
        if horizon is not None and time >= horizon:
            break  # before rounding: it may be beyond the grid
        result.append(on_grid(time))
        if len(result) == n:
            break
        if len(result) >= MOST:
            raise WorkloadError(f"more than {MOST} arrivals at {rate:g}/s: give a lower rate or a horizon")
    return result


def poisson(rate: float, n: int, seed: int) -> list[float]:
    """``n`` arrival times of a Poisson process of ``rate`` programs per second.

    The same seed at another rate gives the same times, stretched. Raises
    ValueError unless the rate is positive and finite, or if time runs off the grid.
    """
    return times("poisson", rate, seed, n=n)


def recorded(programs: Sequence[ProgramSpec]) -> list[float]:
    """The recorded arrival times of a trace, in seconds.

    Raises ValueError if a program has none.
    """
    result = []
    for spec in programs:
        if spec.arrival is None:
            raise ValueError(f"program {spec.index} has no recorded arrival: give a rate or a concurrency")
        result.append(on_grid(spec.arrival))
    return result


def _check(rate: float, n: int | None, horizon: float | None) -> None:
    if not (rate > 0.0 and math.isfinite(rate)):
        raise WorkloadError(f"the arrival rate must be above 0 programs/s and finite, got {rate!r}")
    if n is None and horizon is None:
        raise WorkloadError("how many arrivals: give n, or a horizon in seconds")
    if n is not None and n < 0:
        raise WorkloadError(f"the number of arrivals must not be negative, got {n}")
    if horizon is not None and not 0.0 < horizon <= LONGEST:
        raise WorkloadError(f"the horizon must be above 0 s and at most {LONGEST:g} s, got {horizon!r}")


def _stretched(
    arrivals: Arrivals, rate: float, seed: int, n: int | None, horizon: float | None
) -> Iterator[float]:
    """Arrivals of mean rate 1 per unit of time, at the times that ``rate`` puts them."""
    kind = "poisson" if arrivals.kind == "ramp" else arrivals.kind
    gaps, gap = stream(key_of("arrivals", seed), kind), _GAPS[kind](arrivals.cv)
    over = arrivals.over
    if arrivals.kind == "ramp" and over is None:
        over = horizon if horizon is not None else 2.0 * (n or 0) / (rate * (1.0 + arrivals.to))
    now = 0.0
    while True:
        now += gap(gaps)
        yield now / rate if over is None else ramp_time(now, rate, arrivals.to, over)


def ramp_time(expected: float, rate: float, to: float, over: float) -> float:
    """When ``expected`` arrivals are expected, in seconds, if the rate goes from ``rate`` to
    ``to * rate`` in a straight line over ``over`` seconds and then stays."""
    in_ramp = 0.5 * rate * (1.0 + to) * over
    if expected >= in_ramp:
        return over + (expected - in_ramp) / (rate * to)
    slope = rate * (to - 1.0) / over
    return 2.0 * expected / (rate + math.sqrt(max(0.0, rate * rate + 2.0 * slope * expected)))


def weibull_shape(cv: float) -> float:
    """The shape k for which Weibull gaps have this CV: cv^2 + 1 = G(1 + 2/k) / G(1 + 1/k)^2."""
    wanted = math.log1p(cv * cv)
    low, high = 1e-3, 1e3  # the CV falls from more than 1e100 to .0013
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return middle
        found = math.lgamma(1.0 + 2.0 / middle) - 2.0 * math.lgamma(1.0 + 1.0 / middle)
        low, high = (middle, high) if found > wanted else (low, middle)


_Gap = Callable[[Stream], float]


def _exponential(cv: float) -> _Gap:
    del cv
    return lambda source: source.exponential(1.0)


def _gamma(cv: float) -> _Gap:
    shape = 1.0 / (cv * cv)
    return lambda source: source.gamma(shape, 1.0 / shape)


def _weibull(cv: float) -> _Gap:
    k = weibull_shape(cv)
    scale = math.exp(-math.lgamma(1.0 + 1.0 / k))
    return lambda source: source.weibull(k, scale)


_GAPS: Mapping[str, Callable[[float], _Gap]] = {
    "poisson": _exponential,
    "gamma": _gamma,
    "weibull": _weibull,
}
"""Gaps of mean 1 by kind, made from their CV."""
