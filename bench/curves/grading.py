"""A claim against what was measured (house rules of measuring, 17).

*Reproduced*: the interval of the ratio overlaps [R/1.25, 1.25 R]. *Partly*: not
that, but the same sign and at least half the log ratio. Else *not reproduced*.
Fewer than 8 seeds: the word stands behind "exploratory".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.stats import VERDICT_SEEDS, Estimate

TOLERANCE = 1.25
NOT_TESTABLE = "not testable here"
EXPLORATORY = "exploratory: "


def verdict(found: Estimate, low: float, high: float, seeds: int) -> str:
    """The word for a claimed ratio of ``low`` to ``high`` (equal for a single number).

    A bound (one end open) can refuse a claim or lie inside it; it cannot reach for it.
    """
    if math.isnan(found.value):
        return NOT_TESTABLE
    bottom = found.value if math.isnan(found.low) else found.low
    top = found.value if math.isnan(found.high) else found.high
    if top == math.inf and bottom < low / TOLERANCE:
        return NOT_TESTABLE
    if bottom == 0.0 and top > high * TOLERANCE:
        return NOT_TESTABLE
    return graded(_word(found.value, bottom, top, low, high), seeds)


def of_all(words: Sequence[str]) -> str:
    """The word for a claim of a range about several workloads, from theirs: all of them, or some."""
    bare = [word.removeprefix(EXPLORATORY) for word in words]
    prefix = EXPLORATORY if any(word.startswith(EXPLORATORY) for word in words) else ""
    if all(word == NOT_TESTABLE for word in bare):
        return NOT_TESTABLE
    if all(word == "reproduced" for word in bare):
        return f"{prefix}reproduced"
    return prefix + ("partly" if "reproduced" in bare or "partly" in bare else "not reproduced")


def better(found: Estimate, seeds: int) -> str:
    """The word for a claim of a sign: the interval of the ratio lies above 1."""
    if math.isnan(found.value):
        return NOT_TESTABLE
    holds = found.low > 1.0 if not math.isnan(found.low) else found.value > 1.0
    return graded("reproduced" if holds else "not reproduced", seeds)


def near(found: Estimate, low: float, high: float, seeds: int) -> str:
    """The word for a claimed rate: the interval overlaps it within the tolerance, or it does not."""
    word = verdict(found, low, high, seeds)
    return word.replace("partly", "not reproduced")


def graded(word: str, seeds: int) -> str:
    """The word, marked as exploratory where fewer than 8 seeds stand behind it."""
    return word if seeds >= VERDICT_SEEDS else EXPLORATORY + word


def _word(value: float, bottom: float, top: float, low: float, high: float) -> str:
    if bottom <= high * TOLERANCE and top >= low / TOLERANCE:
        return "reproduced"
    claimed = math.log(math.sqrt(low * high))
    gained = math.log(value) if value > 0 else -math.inf
    return "partly" if gained * claimed > 0 and abs(gained) >= 0.5 * abs(claimed) else "not reproduced"
