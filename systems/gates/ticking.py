"""When gates look by themselves: at whole multiples of a period."""

from __future__ import annotations

import math

from vocabulary import on_grid


def after(now: float, period: float) -> float:
    """The next multiple of ``period`` after ``now``, in seconds on the time grid."""
    turn = math.floor(now / period) + 1
    while (due := on_grid(turn * period)) <= now:
        turn += 1
    return due
