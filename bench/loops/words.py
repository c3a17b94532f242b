"""The words of a verdict on a closed loop, and what each asks for (docs/thunderagent.md, Claims).

Those of ``bench.curves.grading`` and one more. A claim that states an effect needs one: an interval that
holds 1 never reproduces it, however near 1 the tolerance comes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bench.curves.grading import NOT_TESTABLE, TOLERANCE, verdict
from bench.stats import VERDICT_SEEDS, Estimate, t_factor, t_interval

REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly", "not reproduced"
SAME_SIGN = "same sign"
"""The effect is there and of the stated sign, but the tolerance of its size holds 1: it cannot be missed."""
WEAKEST_FIRST = (NOT_REPRODUCED, PARTLY, SAME_SIGN, REPRODUCED)
ONE_SIDED = 0.9
"""Level of a two-sided interval whose ends are one-sided 95 % bounds."""


def of_ratio(got: Estimate, low: float, high: float, seeds: int) -> str:
    """The word for a claimed ratio of ``low`` to ``high``, behind whose interval stand ``seeds`` seeds.

    An interval inside a stated range needs no tolerance. Not testable is also what cannot tell the stated
    ratio from 1: an interval that holds both.
    """
    word, side = verdict(got, low, high, VERDICT_SEEDS), _side(low, high)
    if not side or word == NOT_TESTABLE:
        return word
    if word == REPRODUCED and beyond(got, side):
        loose = low / TOLERANCE <= 1.0 <= high * TOLERANCE
        return SAME_SIGN if loose and not low <= got.low <= got.high <= high else REPRODUCED
    if _half(got, low, high, side) and leans(got, side, seeds):
        return PARTLY
    both = got.low <= 1.0 <= got.high and (got.high >= low if side > 0 else got.low <= high)
    return NOT_TESTABLE if both else NOT_REPRODUCED


def of_sign(found: Sequence[Estimate], side: int, seeds: int, stated: float = 1.0) -> str:
    """The word for ratios that are all to lie above 1 (``side`` 1) or below (-1).

    Partly: by a one-sided test at 95 % each, and at least half the logarithm of what is ``stated``.
    """
    if any(math.isnan(one.value) for one in found):
        return NOT_TESTABLE
    if all(beyond(one, side) for one in found):
        return REPRODUCED
    enough = all(leans(one, side, seeds) and _half(one, stated, stated, side) for one in found)
    return PARTLY if enough else NOT_REPRODUCED


def beyond(got: Estimate, side: int) -> bool:
    """Whether the interval excludes 1 on that side; one seed has no interval, so nothing is excluded."""
    return got.low > 1.0 if side > 0 else got.high < 1.0


def leans(got: Estimate, side: int, seeds: int) -> bool:
    """Whether the one-sided 95 % bound of a ratio (its interval is Student's, in logarithms) excludes 1."""
    if seeds < 2 or not 0 < got.low <= got.high < math.inf:
        return False
    half = math.log(got.high / got.low) / 2 * t_factor(seeds - 1, ONE_SIDED) / t_factor(seeds - 1)
    return side * math.log(got.value) > half


def whole(words: Sequence[str], complete: bool) -> str:
    """The word for a claim about several panels: it must hold in each, so the weakest of theirs; where one
    is missing (not ``complete``) "partly" at the most."""
    tested = [word for word in words if word != NOT_TESTABLE]
    if not tested:
        return NOT_TESTABLE
    weakest = min(tested, key=WEAKEST_FIRST.index)
    if complete and len(tested) == len(words):
        return weakest
    return min(weakest, PARTLY, key=WEAKEST_FIRST.index)


def mean_of(values: Mapping[int, float]) -> Estimate:
    """Mean over seeds with its t interval. NaN if a seed has no value: leaving it out would leave out
    the worst."""
    if not values:
        return Estimate(math.nan, note="not run")
    if lacking := [seed for seed, value in values.items() if not math.isfinite(value)]:
        return Estimate(math.nan, note=f"no value for seed {lacking[0]}")
    return t_interval(list(values.values()))


def _side(low: float, high: float) -> int:
    return 1 if low > 1.0 else -1 if high < 1.0 else 0


def _half(got: Estimate, low: float, high: float, side: int) -> bool:
    """At least half the logarithm of the stated ratio (of a range: of its middle), on its side."""
    return side * math.log(got.value) >= abs(math.log(low * high)) / 4
