"""Measured against simulated, for parts d and e: errors, pairs of schedulers, replies. Pure functions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from bench.fidelity.server_calls import Numbers
from bench.stats import t_interval

Cell = tuple[str, str]
"""(rate's name, scheduler)."""
METRICS = ("tpot", "ttft", "program")


class Row(NamedTuple):
    """One (rate, scheduler), by metric: measured and simulated (medians over the rounds, seconds), the median
    over rounds of the absolute relative error, and the same of one real run predicted by another
    (``again``, over all pairs of rounds; NaN with one): what a perfect model would be off by."""

    rate: str
    scheduler: str
    measured: Mapping[str, float]
    simulated: Mapping[str, float]
    error: Mapping[str, float]
    again: Mapping[str, float]


class Pair(NamedTuple):
    """Two schedulers at one rate. ``measured``: mean over runs of log(a / b) of the mean program latency,
    with its 95 % t interval over the runs, paired; ``simulated``: the same number of the simulation.
    ``separate``: the interval excludes 0; ``missed``: it does, and the simulation has the other sign;
    ``unseen``: it does, and in the simulation the two are exactly alike: they decide alike."""

    rate: str
    a: str
    b: str
    measured: float
    low: float
    high: float
    simulated: float

    @property
    def separate(self) -> bool:
        """Whether the measured interval excludes 0; never with one run, which has none."""
        return self.low > 0.0 or self.high < 0.0

    @property
    def missed(self) -> bool:
        """Whether the simulation puts them the other way round."""
        return self.separate and self.measured * self.simulated < 0.0

    @property
    def unseen(self) -> bool:
        """Whether the simulation sees no difference at all where there is one."""
        return self.separate and self.simulated == 0.0


def rows(
    measured: Mapping[Cell, Sequence[Numbers]], simulated: Mapping[Cell, Sequence[Numbers]]
) -> list[Row]:
    """A row per (rate, scheduler); run k is predicted by simulation k."""
    found = []
    for cell, runs in measured.items():
        ours = {m: [getattr(one, m) for one in simulated[cell]] for m in METRICS}
        theirs = {m: [getattr(one, m) for one in runs] for m in METRICS}
        off = {m: _off(zip(ours[m], theirs[m], strict=True)) for m in METRICS}
        again = {m: _off(permutations(theirs[m], 2)) for m in METRICS}
        found.append(Row(*cell, _medians(theirs), _medians(ours), off, again))
    return found


def _off(pairs: Iterable[tuple[float, float]]) -> float:
    """Median of |predicted / real - 1|; NaN of none."""
    errors = [abs(predicted / real - 1.0) for predicted, real in pairs]
    return float(np.median(errors)) if errors else math.nan


def _medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: float(np.median(several)) for name, several in values.items()}


def pairs(
    measured: Mapping[Cell, Sequence[Numbers]], simulated: Mapping[Cell, Sequence[Numbers]]
) -> list[Pair]:
    """Every pair of schedulers at every rate; run k of one is paired with run k of the other."""
    by_rate: dict[str, list[str]] = defaultdict(list)
    for rate, scheduler in measured:
        by_rate[rate].append(scheduler)
    found = []
    for rate, names in by_rate.items():
        for a, b in combinations(names, 2):
            both = zip(measured[rate, a], measured[rate, b], strict=True)
            interval = t_interval([math.log(x.program / y.program) for x, y in both])
            rounds = zip(simulated[rate, a], simulated[rate, b], strict=True)
            ours = float(np.mean([math.log(x.program / y.program) for x, y in rounds]))
            found.append(Pair(rate, a, b, interval.value, interval.low, interval.high, ours))
    return found


class Said(NamedTuple):
    """Replies of all runs by call: ``calls`` made in more than one run, ``differ`` of them not answered
    alike everywhere, ``distinct`` replies among all, ``runs``."""

    calls: int
    differ: int
    distinct: int
    runs: int


def said(runs: Iterable[Mapping[str, str]]) -> Said:
    """Compare replies; each run maps PROGRAM.THREAD.INDEX to a hash."""
    replies: dict[str, list[str]] = defaultdict(list)
    count = 0
    for run in runs:
        count += 1
        for call, reply in run.items():
            replies[call].append(reply)
    again = [found for found in replies.values() if len(found) > 1]
    differ = sum(len(set(found)) > 1 for found in again)
    return Said(len(again), differ, len({r for found in replies.values() for r in found}), count)
