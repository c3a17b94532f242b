"""Times away that were observed, by tool, and the curves they give: bounded, and the newest count."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence

from systems.retentions.curve import Curve, kaplan_meier

MOST_GROUPS = 1024
"""Groups with observations of their own; beyond that the one not seen for longest is forgotten."""
STALE = 16
"""A curve is made anew once a ``STALE``-th of what it was made from is new."""
Group = Hashable
Open = Callable[[Group], Iterable[float]]
"""How long the threads of a group that are away now have been away (s)."""


class _Window:
    """The last observations of one group, and the curve of when it was last asked for."""

    __slots__ = ("curve", "fresh", "observed", "returned")

    def __init__(self, size: int) -> None:
        self.observed: deque[tuple[float, bool]] = deque(maxlen=size)
        self.returned = 0
        self.fresh = 0
        self.curve: Curve | None = None

    def add(self, seconds: float, returned: bool) -> None:
        """The oldest makes room."""
        if len(self.observed) == self.observed.maxlen:
            self.returned -= self.observed[0][1]
        self.observed.append((seconds, returned))
        self.returned += returned
        self.fresh += 1

    def renewed(self, still_away: Iterable[float]) -> Curve:
        """The curve, made anew if it is stale."""
        if self.curve is None or self.fresh * STALE >= len(self.observed):
            rows = [*self.observed, *((seconds, False) for seconds in still_away)]
            self.curve, self.fresh = kaplan_meier(rows), 0
        return self.curve


class Durations:
    """The last ``window`` times away of each group. ``least`` returns make a curve; fewer make none."""

    def __init__(self, window: int, least: float) -> None:
        self._window, self._least = window, least
        self._groups: OrderedDict[Group, _Window] = OrderedDict()

    def add(self, groups: Iterable[Group], seconds: float, returned: bool) -> None:
        """One time away, which counts in every one of its groups."""
        for group in groups:
            found = self._groups.get(group)
            if found is None:
                if len(self._groups) >= MOST_GROUPS:
                    self._groups.popitem(last=False)
                found = self._groups[group] = _Window(self._window)
            found.add(seconds, returned)
            self._groups.move_to_end(group)

    def curve(self, groups: Sequence[Group], still_away: Open) -> tuple[Curve, float] | None:
        """The curve of the first of ``groups`` that has one, and how likely its threads come back at all.

        Who is away now is censored; so is whose program ended. The chance is (returns + 1) / (ends + 1).
        """
        for group in groups:
            found = self._groups.get(group)
            if found is not None and found.returned >= self._least:
                chance = (found.returned + 1) / (len(found.observed) + 1)
                return found.renewed(still_away(group)), chance
        return None
