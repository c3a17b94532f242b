"""Measured against simulated, for parts d and e: errors, pairs of schedulers, replies. Pure functions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bench.fidelity.server_calls import Numbers
from bench.stats import t_interval

Cell = tuple[str, str]
"""(rate's name, scheduler)."""
METRICS = ("tpot", "ttft", "program")


class Row(NamedTuple):
    """One (rate, scheduler): measured (median of the runs) and simulated, seconds, and the median over
    runs of the absolute relative error, by metric."""

    rate: str
    scheduler: str
    measured: Mapping[str, float]
    simulated: Mapping[str, float]
    error: Mapping[str, float]


class Pair(NamedTuple):
    """Two schedulers at one rate. ``measured``: mean over runs of log(a / b) of the mean program latency,
    with its 95 % t interval over the runs, paired; ``simulated``: the same number of the simulation.
    ``separate``: the interval excludes 0; ``missed``: it does, and the simulation has not the same sign (a
    tie predicts no order, ``unseen``)."""

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
        """Whether the simulation puts them the other way round, or sees no difference."""
        return self.separate and not self.measured * self.simulated > 0.0

    @property
    def unseen(self) -> bool:
        """Whether the simulation sees no difference at all where there is one."""
        return self.separate and self.simulated == 0.0


def rows(measured: Mapping[Cell, Sequence[Numbers]], simulated: Mapping[Cell, Numbers]) -> list[Row]:
    """A row per (rate, scheduler)."""
    found = []
    for cell, runs in measured.items():
        ours = simulated[cell]._asdict()
        theirs = {m: [run._asdict()[m] for run in runs] for m in METRICS}
        error = {m: float(np.median([abs(ours[m] / x - 1.0) for x in theirs[m]])) for m in METRICS}
        found.append(
            Row(
                *cell, {m: float(np.median(theirs[m])) for m in METRICS}, {m: ours[m] for m in METRICS}, error
            )
        )
    return found


def pairs(measured: Mapping[Cell, Sequence[Numbers]], simulated: Mapping[Cell, Numbers]) -> list[Pair]:
    """Every pair of schedulers at every rate; run k of one is paired with run k of the other."""
    by_rate: dict[str, list[str]] = defaultdict(list)
    for rate, scheduler in measured:
        by_rate[rate].append(scheduler)
    found = []
    for rate, names in by_rate.items():
        for a, b in combinations(names, 2):
            both = zip(measured[rate, a], measured[rate, b], strict=True)
            interval = t_interval([math.log(x.program / y.program) for x, y in both])
            ours = math.log(simulated[rate, a].program / simulated[rate, b].program)
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
