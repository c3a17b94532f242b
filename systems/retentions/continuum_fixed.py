"""Continuum as its public code does it (arXiv 2511.02230): two seconds, or nothing."""

from __future__ import annotations

from systems.knobs import flag
from systems.retentions.absences import Absence
from systems.retentions.firm import finite
from systems.retentions.watching import UNPRICED, Prices, Watching

MOST_TOOLS = 4096
"""Tools with a mean of their own; a tool that comes after that stays unknown."""


class ContinuumFixed(Watching):
    """Kept for exactly ``seconds`` if the tool's mean time is at most that, or unknown; else not at all.

    ``seconds``: default 2.0, the public code's. The mean is over all times that threads were away with that
    tool and came back, from the end of one call to the arrival of the next, as the public code measures
    them; who never comes back counts for nothing. A person ("human") is a tool like any other. No prices.
    ``firm`` (default): newcomers wait until then, as in the public code.
    """

    name = "continuum-fixed"

    def __init__(self, *, seconds: float = 2.0, firm: bool = True) -> None:
        super().__init__()
        self.firm = flag("firm", firm)
        self.seconds = finite("seconds", seconds, self.firm)
        self._sums: dict[str, tuple[float, int]] = {}

    def verdict(self, absence: Absence, now: float) -> tuple[float, Prices]:
        """``seconds`` from now, or now."""
        total, count = self._sums.get(absence.away.tool, (0.0, 0))
        short = total <= self.seconds * count
        return (now + self.seconds if short else now), UNPRICED

    def learn(self, absence: Absence, seconds: float, returned: bool) -> None:
        """One time more for the tool's mean."""
        tool = absence.away.tool
        if returned and (tool in self._sums or len(self._sums) < MOST_TOOLS):
            total, count = self._sums.get(tool, (0.0, 0))
            self._sums[tool] = (total + seconds, count + 1)


RETENTION = ContinuumFixed
