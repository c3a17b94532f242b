"""A claim against what was measured (house rules of measuring, 17).

*Reproduced*: the interval of the ratio overlaps [R/1.25, 1.25 R]. *Partly*: not
that, but the same sign and at least half the log ratio. Else *not reproduced*.
Fewer than 8 seeds: the word stands behind "exploratory".
"""

from __future__ import annotations

import math

from bench.stats import VERDICT_SEEDS, Estimate

TOLERANCE = 1.25
NOT_TESTABLE = "not testable here"
EXPLORATORY = "exploratory: "


def verdict(found: Estimate, low: float, high: float, seeds: int) -> str:
    """The word for a claimed ratio of ``low`` to ``high`` (equal for a single number)."""
    if math.isnan(found.value):
        return NOT_TESTABLE
    return _graded(_word(found, low, high), seeds)


def better(found: Estimate, seeds: int) -> str:
    """The word for a claim of a sign: the interval of the ratio lies above 1."""
    if math.isnan(found.value):
        return NOT_TESTABLE
    holds = found.low > 1.0 if not math.isnan(found.low) else found.value > 1.0
    return _graded("reproduced" if holds else "not reproduced", seeds)


def _graded(word: str, seeds: int) -> str:
    return word if seeds >= VERDICT_SEEDS else EXPLORATORY + word


def _word(found: Estimate, low: float, high: float) -> str:
    bottom = found.value if math.isnan(found.low) else found.low
    top = found.value if math.isnan(found.high) else found.high
    if bottom <= high * TOLERANCE and top >= low / TOLERANCE:
        return "reproduced"
    middle = math.sqrt(low * high)
    gained, claimed = math.log(found.value) if found.value > 0 else -math.inf, math.log(middle)
    excludes_one = bottom > 1.0 if claimed > 0 else top < 1.0
    if excludes_one and gained * claimed > 0 and abs(gained) >= 0.5 * abs(claimed):
        return "partly"
    return "not reproduced"
