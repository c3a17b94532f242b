"""When an engine takes in what has come: between two steps."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from vocabulary import Step


class Boundaries:
    """The steps of one simulated engine, in order."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._starts = [step.start for step in steps]
        self._ends = [step.start + step.seconds for step in steps]

    def late(self, arrival: float) -> float:
        """Seconds from an arrival to the end of the step that was running then; 0 on an idle engine."""
        last = bisect_left(self._starts, arrival) - 1
        return max(0.0, self._ends[last] - arrival) if last >= 0 else 0.0
