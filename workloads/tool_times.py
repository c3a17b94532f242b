"""How long tools take: as recorded, or of another family with the same mean.

What a policy may learn from a tool's elapsed time depends on the family: a heavy tail has a falling
hazard (who has been away long stays away), an exponential a constant one, a near-deterministic tool a
rising one. To compare them, load must not differ: every family has exactly the mean that is asked for,
its bounds included, tool by tool. Means are integrals, not samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

from workloads.base import WorkloadError
from workloads.parameters import Parameters, nearest
from workloads.random_streams import Dist, Stream

SIGMA = 2.33
"""Spread of ln(seconds) of the heavy family: that of 184 k Codex tool calls."""
TOP = 0.995
"""The heavy family is cut at this quantile: 37 times its mean, and a coefficient of variation of 3.7.
Uncut it would be 15, and no run long enough for the means of two seeds to agree."""
SPREAD = 0.1
"""The near-deterministic family is uniform within so much of its mean."""
LONGEST_S = 86_400.0
"""No tool takes longer than a day."""
_normal = NormalDist()
_STEPS, _REACH = 4000, 6.0


@dataclass(frozen=True, slots=True)
class ToolTimes:
    """Tools by name, how often each is used, and how long it takes (s)."""

    names: tuple[str, ...]
    shares: tuple[float, ...]
    times: tuple[Dist, ...]

    def draw(self, picks: Stream, lengths: Stream) -> tuple[str, float]:
        """The next tool and its seconds: one draw of each stream (of ``picks`` where there is a choice)."""
        name, seconds = self.names[-1], self.times[-1]
        at = picks.uniform() if len(self.names) > 1 else 1.0
        for tool, share, dist in zip(self.names, self.shares, self.times, strict=True):
            at -= share
            if at < 0.0:
                name, seconds = tool, dist
                break
        return name, min(max(0.0, seconds.value(lengths)), LONGEST_S)

    @property
    def mean(self) -> float:
        """Mean seconds of a tool."""
        return sum(share * mean_of(dist) for share, dist in zip(self.shares, self.times, strict=True))


class _Quantile(Stream):
    """A stream that gives one quantile."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        super().__init__(0)
        self.at = 0.5

    def uniform(self) -> float:
        """The quantile."""
        return self.at

    def bits(self) -> int:
        """There are none."""
        raise WorkloadError("a distribution without quantiles (gamma) has no exact mean; take another")


def mean_of(dist: Dist) -> float:
    """The mean of what ``value`` gives, bounds and scale included, by quadrature over its quantiles.

    Within .1 % for what has a density. Raises WorkloadError for a distribution without quantiles.
    """
    source, total, weights = _Quantile(), 0.0, 0.0
    for i in range(_STEPS):
        z = _REACH * (2.0 * (i + 0.5) / _STEPS - 1.0)
        source.at = _normal.cdf(z)
        weight = math.exp(-0.5 * z * z)
        total += weight * dist.value(source)
        weights += weight
    return total / weights


def heavy(mean: float) -> Dist:
    """Lognormal of ``SIGMA``, cut at its quantile ``TOP``, of this mean (s)."""
    z = _normal.inv_cdf(TOP)
    cut = math.exp(SIGMA * z)
    unit = mean / (math.exp(SIGMA * SIGMA / 2.0) * _normal.cdf(z - SIGMA) + (1.0 - TOP) * cut)
    return Dist(lambda source: source.lognormal(0.0, SIGMA) * unit, 0.0, cut * unit)


def exponential(mean: float) -> Dist:
    """Exponential of this mean (s)."""
    return Dist(lambda source: source.exponential(mean), 0.0)


def deterministic(mean: float) -> Dist:
    """Within a tenth of this mean (s)."""
    return Dist(lambda source: mean * (1.0 + SPREAD * (2.0 * source.uniform() - 1.0)), 0.0)


FAMILIES: Mapping[str, Callable[[float], Dist]] = {
    "heavy": heavy,
    "exponential": exponential,
    "deterministic": deterministic,
}
RECORDED = "recorded"


def tool_times(p: Parameters, scale: float) -> ToolTimes:
    """Of ``tool_share``, ``tool_s``, ``tool_family`` and ``tool_mean_s``; recorded times are ``scale``d.

    ``tool_mean_s`` 0: the mean of what is recorded. Every tool keeps its own part of the mean.
    Raises WorkloadError naming the field.
    """
    shares, dists = _shares(p), Parameters(f"{p.where}: tool_s", _table(p, "tool_s"))
    names = tuple(sorted(shares))
    for name in dists.values:
        if name not in shares:
            raise WorkloadError(f"{p.where}: tool_s.{name} is no tool: {nearest(name, shares)}")
    total = sum(shares.values())
    times = ToolTimes(
        names,
        tuple(shares[name] / total for name in names),
        tuple(dists.dist(n).scaled(scale) for n in names),
    )
    family, mean = p.word("tool_family"), p.number("tool_mean_s", low=0.0, high=LONGEST_S)
    if family != RECORDED and family not in FAMILIES:
        raise WorkloadError(
            f"{p.where}: tool_family {nearest(family, [RECORDED, *FAMILIES])}; got {family!r}"
        )
    return times if family == RECORDED and not mean else _of_family(p, times, family, mean)


def _of_family(p: Parameters, times: ToolTimes, family: str, mean: float) -> ToolTimes:
    try:
        own = [mean_of(dist) for dist in times.times]
    except WorkloadError as error:
        raise WorkloadError(f"{p.where}: tool_s: {error}") from None
    recorded = sum(share * m for share, m in zip(times.shares, own, strict=True))
    if recorded <= 0:
        raise WorkloadError(f"{p.where}: tools that take no time have no other family or mean")
    factor = mean / recorded if mean else 1.0
    if family == RECORDED:
        changed = [dist.scaled(factor) for dist in times.times]
    else:
        changed = [FAMILIES[family](m * factor) for m in own]
    return ToolTimes(times.names, times.shares, tuple(changed))


def _shares(p: Parameters) -> dict[str, float]:
    table = _table(p, "tool_share")
    own = Parameters(f"{p.where}: tool_share", table)
    shares = {name: own.number(name, low=0.0) for name in table}
    if not sum(shares.values()) > 0:
        raise WorkloadError(f"{p.where}: tool_share: at least one tool must have a share above 0")
    return shares


def _table(p: Parameters, name: str) -> Mapping[str, object]:
    value = p.values.get(name)
    if not isinstance(value, Mapping):
        raise WorkloadError(f"{p.where}: {name} must be a table of tool = value, got {value!r}")
    return value
