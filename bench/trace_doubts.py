"""What in recorded data looks invented, or was lost when it was written down.

Each rule says what it saw and why that is odd. A rule needs enough values to be sure: real
files of a few sessions raise none by chance (the thresholds are below). Generators are not
judged: they are invented.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.stats import Array
from bench.trace_survey import CALLS, OUTPUT, PROMPT, Survey
from bench.trace_tails import KS_5_PERCENT

ENOUGH = 30
"""Fewer calls or programs are not judged."""
SAME = 0.99
"""Share of one value above which a length is constant."""
ROUND = 0.95
"""Share of multiples of a number above which lengths are round."""
ROUNDS = (1000, 100, 50, 64, 25, 16, 10)
COPIES = 0.05
"""Share of programs that are copies of another above which sessions repeat."""
TICKED = 0.2
"""Share of arrivals at the same instant as the one before above which the clock is coarse."""
STEADY = 0.1
"""Coefficient of variation of the gaps below which arrivals are a metronome's."""


def doubts(survey: Survey) -> list[dict[str, Any]]:
    """Findings as {"rule", "saw", "why"}; empty for a generator, and for data that raise none."""
    if not survey.programs.read:
        return []
    rules = (_lengths, _sharing, _copies, _arrivals)
    return [{"rule": rule, "saw": saw, "why": why} for find in rules for rule, saw, why in find(survey)]


Finding = tuple[str, str, str]


def _lengths(survey: Survey) -> Iterator[Finding]:
    for name in (PROMPT, OUTPUT):
        values = survey.values[name]
        if values.size < ENOUGH:
            continue
        if found := constant(values):
            yield "constant lengths", f"{name}: {found}", "real lengths vary from call to call"
        elif found := round_numbers(values):
            yield "round numbers", f"{name}: {found}", "tokenizers do not count in round numbers"
        elif found := uniform(values):
            yield "uniform lengths", f"{name}: {found}", "real lengths have a long tail"


def constant(values: Array) -> str:
    """The value that nearly all have; empty if there is none."""
    x, count = np.unique(values, return_counts=True)
    share = float(count.max()) / values.size
    return f"{share:.0%} are {x[count.argmax()]:,.0f}" if share >= SAME else ""


def round_numbers(values: Array) -> str:
    """The number that nearly all are multiples of; empty if there is none."""
    for unit in ROUNDS:
        share = float((values % unit == 0).mean())
        if share >= ROUND:
            return f"{share:.0%} are multiples of {unit}"
    return ""


def uniform(values: Array) -> str:
    """The range they fill evenly; empty if they do not (Kolmogorov-Smirnov at 5 %, 100 values)."""
    low, high = float(values.min()), float(values.max())
    if values.size < 100 or high - low < 20:
        return ""
    x = (np.sort(values) - low + 0.5) / (high - low + 1.0)
    steps = np.arange(1, x.size + 1) / x.size
    distance = max(float(np.abs(steps - x).max()), float(np.abs(steps - 1 / x.size - x).max()))
    fits = distance <= KS_5_PERCENT / math.sqrt(x.size)
    return f"spread evenly from {low:,.0f} to {high:,.0f} (KS {distance:.3f})" if fits else ""


def _sharing(survey: Survey) -> Iterator[Finding]:
    calls, prompts = survey.values[CALLS], survey.values[PROMPT]
    if prompts.size < ENOUGH or survey.optimum.any():
        return
    several = int((calls > 1).sum())
    if several:
        yield (
            "no sharing",
            f"no prompt starts like an earlier one, in {several:,} programs of several calls",
            "the calls of an agent continue each other; prefix-cache results on these data mean nothing",
        )
        return
    yield (
        "no sharing",
        f"{prompts.size:,} programs of one call, none of which starts like another",
        "formats of single requests do not say what is shared: hit rates here are 0 because nobody wrote "
        "them down",
    )


def _copies(survey: Survey) -> Iterator[Finding]:
    long = [s for s, calls in zip(survey.signatures, survey.values[CALLS], strict=True) if calls >= 3]
    if len(long) < ENOUGH // 3:
        return
    repeats = len(long) - len(Counter(long))
    if repeats / len(long) > COPIES:
        yield (
            "identical sessions",
            f"{repeats:,} of {len(long):,} programs of three calls and more have the lengths of another",
            "copies under other names make a set look larger than it is (each has its own prefixes here)",
        )


def _arrivals(survey: Survey) -> Iterator[Finding]:
    if survey.arrivals is None or survey.arrivals.size < ENOUGH:
        return
    gaps = np.diff(survey.arrivals)
    if gaps.mean() <= 0:
        yield "no arrivals", "every program arrives at once", "give --rate or --concurrency for a run"
        return
    cv, zeros = float(gaps.std() / gaps.mean()), float((gaps == 0).mean())
    if cv < STEADY:
        yield (
            "evenly spaced arrivals",
            f"gaps of {gaps.mean():.3g} s with a coefficient of variation of {cv:.2g}",
            "people and programs do not arrive by a metronome (Poisson: 1)",
        )
    tick = float(np.median(gaps[gaps > 0]))
    if zeros >= TICKED:
        yield (
            "coarse clock",
            f"{zeros:.0%} of the arrivals share their instant with another; else gaps of mostly {tick:g} s",
            "the recorder's ticks, not bursts of users: CV and queues are overstated; a --rate redraws them",
        )
