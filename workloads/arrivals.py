"""When programs arrive: seconds on the time grid, from 0.

Arrival times have a key of their own: no change of a program moves an arrival,
and no change of the rate changes a program. A closed loop needs no times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vocabulary import on_grid
from workloads.base import ProgramSpec
from workloads.keys import key_of
from workloads.random_streams import stream


def poisson(rate: float, n: int, seed: int) -> list[float]:
    """``n`` arrival times of a Poisson process of ``rate`` programs per second.

    The same seed at another rate gives the same times, stretched. Raises
    ValueError unless the rate is positive and finite, or if time runs off the grid.
    """
    if not (rate > 0.0 and math.isfinite(rate)):
        raise ValueError(f"the arrival rate must be above 0 programs/s and finite, got {rate!r}")
    if n < 0:
        raise ValueError(f"the number of arrivals must not be negative, got {n}")
    gaps, now, times = stream(key_of("arrivals", seed), "poisson"), 0.0, []
    for _ in range(n):
        now += gaps.exponential(1.0)
        times.append(on_grid(now / rate))
    return times


def recorded(programs: Sequence[ProgramSpec]) -> list[float]:
    """The recorded arrival times of a trace, in seconds.

    Raises ValueError if a program has none.
    """
    times = []
    for spec in programs:
        if spec.arrival is None:
            raise ValueError(f"program {spec.index} has no recorded arrival: give a rate or a concurrency")
        times.append(on_grid(spec.arrival))
    return times
