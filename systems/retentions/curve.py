"""How long threads stay away: survival curves, and what they say about keeping.

``S(t)`` is the share still away ``t`` seconds after the call's end. Between events it is flat, so the best
time to stop keeping is always an event (or at once): a vertex of the lower convex hull of the points
(seconds held until t, S(t)), where held(t) is the integral of S.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isqrt

from vocabulary import GRID, INF


class Curve:
    """A step function: ``alive[i]`` are still away from ``ages[i]`` (s, increasing) on; all are at 0.

    Raises ValueError for ages that do not increase from 0, or shares that do not fall from 1.
    """

    __slots__ = ("_held", "_next", "ages", "alive")

    def __init__(self, ages: Sequence[float], alive: Sequence[float]) -> None:
        if not ages or len(ages) != len(alive) or ages[0] != 0.0 or alive[0] != 1.0:
            raise ValueError("a survival curve starts with a share of 1 at age 0")
        if any(b <= a for a, b in pairwise(ages)):
            raise ValueError("a survival curve's ages must increase")
        if any(b > a for a, b in pairwise(alive)) or alive[-1] < 0.0:
            raise ValueError("a survival curve's shares must fall, down to 0 at the least")
        self.ages, self.alive = ages, alive
        self._held = [0.0]
        for i in range(1, len(ages)):
            self._held.append(self._held[-1] + alive[i - 1] * (ages[i] - ages[i - 1]))
        self._next = self._hull()

    def _hull(self) -> list[int]:
        """For each point the next vertex on the lower hull of the points from there on; the last: itself."""
        last = len(self.ages) - 1
        after = [last] * (last + 1)
        for i in range(last - 1, -1, -1):
            j = i + 1
            while j != last and self._rate(i, after[j]) >= self._rate(i, j):
                j = after[j]
            after[i] = j
        return after

    def _rate(self, i: int, j: int) -> float:
        """Returns per second held, from point ``i`` to a later one."""
        held = self._held[j] - self._held[i]
        return (self.alive[i] - self.alive[j]) / held if held > 0.0 else 0.0

    def share(self, age: float) -> float:
        """S(age)."""
        return self.alive[bisect_right(self.ages, age) - 1]

    def held(self, age: float) -> float:
        """Seconds for which KV is held on average if it is given up at ``age``, or at the last event."""
        i = bisect_right(self.ages, age) - 1
        if i == len(self.ages) - 1:
            return self._held[-1]
        return self._held[i] + self.alive[i] * (age - self.ages[i])

    def worth(self, age: float) -> float:
        """The most returns per second held (1/s) that going on can bring after ``age`` seconds.

        The Gittins index of stopping, looking ahead over at least the square root of the events that are
        left: one event that happens to be next is noise. 0 where nobody was seen to return that late.
        """
        i, last = bisect_right(self.ages, age) - 1, len(self.ages) - 1
        if i == last:
            return 0.0
        here, alive, held = self.alive[i], self.alive, self._held
        j = i + 1 + isqrt(last - i - 1)
        start = min(held[i] + here * (age - self.ages[i]), held[j] - GRID)
        best = (here - alive[j]) / (held[j] - start)
        while j != last:
            j = self._next[j]
            rate = (here - alive[j]) / (held[j] - start)
            if rate < best:
                break
            best = rate
        return best

    def stop(self, rate: float) -> float:
        """The age at which keeping is given up if a second held costs as much as ``rate`` returns bring.

        The latest minimum of S(t) + rate * held(t); INF where holding costs nothing.
        """
        if rate <= 0.0:
            return INF
        i, last = 0, len(self.ages) - 1
        while i != last and self._rate(i, self._next[i]) >= rate:
            i = self._next[i]
        return self.ages[i]


class Known(Curve):
    """A thread whose time away is known (an oracle's): after it, it is about to be back."""

    __slots__ = ()

    def __init__(self, seconds: float) -> None:
        super().__init__((0.0, max(seconds, GRID)), (1.0, 0.0))

    def worth(self, age: float) -> float:
        """One return in what is left."""
        return 1.0 / max(self.ages[1] - age, GRID)


def kaplan_meier(observed: Iterable[tuple[float, bool]]) -> Curve:
    """The product-limit estimate (Kaplan and Meier, 1958) from (seconds, returned) pairs.

    Not ``returned``: censored, away for longer than that. At equal times returns come first. Times are at
    least one step of the time grid.
    """
    rows = sorted((max(seconds, GRID), not returned) for seconds, returned in observed)
    ages, alive, at_risk = [0.0], [1.0], len(rows)
    for age, censored in rows:
        if not censored:
            share = alive[-1] * (at_risk - 1) / at_risk
            if age == ages[-1]:
                alive[-1] = share
            else:
                ages.append(age)
                alive.append(share)
        at_risk -= 1
    return Curve(ages, alive)


def decaying(half_life: float, shape: str = "exponential", points: int = 64) -> Curve:
    """A thread about whose tool nothing is known: its worth falls with the time it has been away.

    The rate of return starts at ln 2 / ``half_life`` (s). ``exponential``: it halves every ``half_life``
    (ThunderAgent's decay, base 2); ``linear``: it falls to 0 at 4 half-lives; ``none``: it stays, as for
    exponential times. A curve of ``points`` steps of equal age up to 8 half-lives.
    """
    ages = [8.0 * half_life * i / points for i in range(points + 1)]
    return Curve(ages, [2.0 ** -_HAZARDS[shape](age / half_life) for age in ages])


_HAZARDS = {
    "exponential": lambda x: (1.0 - 2.0**-x) / 0.6931471805599453,
    "linear": lambda x: min(x, 4.0) - min(x, 4.0) ** 2 / 8.0,
    "none": lambda x: x,
}
"""Cumulative rates of return after x half-lives, in units of ln 2."""
SHAPES = tuple(_HAZARDS)
