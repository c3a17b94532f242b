"""No retention: what programs leave goes least recently used first, as in every engine by itself."""

from __future__ import annotations

from collections.abc import Sequence

from systems.protocols import Away, Kept


class Lru:
    """Nothing is kept. No knobs."""

    name = "lru"

    def idle(self, away: Away, now: float) -> float:  # noqa: ARG002
        """Not kept."""
        return now

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:  # noqa: ARG002
        """There are none."""
        return candidates


RETENTION = Lru
