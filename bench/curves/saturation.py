"""The rate at which a system stops keeping up, by bisection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

from bench.config import RunConfig
from bench.curves.points import Bracket, Point, RunCells, neat, sustainable

WIDEST = 64.0
"""A bracket is sought between the first guess over this and the guess times this."""


def saturation(
    config: RunConfig, guess: float, seeds: Sequence[int], run: RunCells, tolerance: float = 1.03
) -> Bracket:
    """The bracket [sustained, not sustained) of ``config``'s rate (programs/s), to ``tolerance``.

    ``config`` names system, workload and horizon; a rate counts over all ``seeds`` as
    ``judge.sustainable`` says. Raises ValueError if none of the rates within a factor of 64
    of ``guess`` is, or all are.
    """
    low, high = 0.0, 0.0
    rate = neat(guess)
    while not (low and high and high / low <= tolerance):
        if _keeps_up(config, rate, seeds, run):
            low = rate
        else:
            high = rate
        rate = neat(_next(low, high, rate))
        if not guess / WIDEST <= rate <= guess * WIDEST:
            raise ValueError(f"no saturation within a factor of {WIDEST:g} of {guess:g} programs/s")
    return Bracket(low, high, len(seeds))


def _next(low: float, high: float, rate: float) -> float:
    if low and high:
        return sqrt(low * high)
    return rate * 1.3 if low else rate / 1.3


def _keeps_up(config: RunConfig, rate: float, seeds: Sequence[int], run: RunCells) -> bool:
    configs = [replace(config, rate=rate, seed=seed) for seed in seeds]
    results = run(configs, f"{config.system} on {config.workload} at {rate:g}/s")
    horizon = config.horizon or 0.0
    return sustainable(
        [
            Point(config.workload, config.system, rate, c.seed, horizon, r.summary, r.folder)
            for c, r in zip(configs, results, strict=True)
        ]
    )
