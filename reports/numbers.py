"""Numbers as text: three significant digits, thin units, an interval where there is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MISSING = "-"


def number(value: float | None) -> str:
    """Three significant digits, whole numbers whole; thousands grouped; '-' for nothing."""
    if value is None or not math.isfinite(value):
        return MISSING
    size = abs(value)
    if value == int(value) and size < 1e15:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    if size >= 0.001:
        return f"{value:.3g}"
    return f"{value:.2e}"


def percent(share: float | None) -> str:
    """A share between 0 and 1 as a percentage with one decimal."""
    return MISSING if share is None or not math.isfinite(share) else f"{share:.1%}"


def estimate(entry: Mapping[str, Any] | None) -> str:
    """``value`` over its interval on a second line, or "no interval"; the note where the value is missing.

    A lower end alone (an upper end the data do not give) is shown as ``[low, inf)``.
    """
    if entry is None:
        return MISSING
    if entry["value"] is None or not math.isfinite(entry["value"]):
        return str(entry.get("note") or MISSING)
    text = number(entry["value"])
    low, high = entry.get("low"), entry.get("high")
    if low is not None and math.isfinite(low) and high in (None, math.inf):
        return f"{text}\n[{number(low)}, inf)"
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return f"{text}\n(no interval)" if entry.get("note") else text
    return f"{text}\n[{number(low)}, {number(high)}]"


def bounded(value: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval; a bound where one end of the interval is open ("> 1.2")."""
    if value is None or math.isnan(value):
        return MISSING
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return number(value)
    if high == math.inf:
        return f"> {number(low)}"
    return f"< {number(high)}" if low == 0.0 else f"{number(value)} [{number(low)}, {number(high)}]"


EXPLORATORY = "exploratory: "


def bare(verdict: str) -> tuple[str, bool]:
    """A verdict without what marks it as one of few seeds, and whether it is one."""
    return verdict.removeprefix(EXPLORATORY), verdict.startswith(EXPLORATORY)


def counts(numbers: Mapping[str, int]) -> str:
    """``name 3, other 1``."""
    return ", ".join(f"{name} {count:,}" for name, count in numbers.items()) or "none"
