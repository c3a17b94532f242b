"""Orders that follow the engine's prefix cache: what lpm and dfs-weight share.

What is cached changes with every step, so the order is asked for at every
boundary at which calls wait; a simulator then cannot jump over steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from systems.knobs import at_least
from systems.process_table import ProcessTable
from systems.protocols import CacheView
from systems.schedulers.accounts import FIRST, Accounts
from vocabulary import INF, Call, Segment, Slot, Snapshot, Usage

MOST_WAITING = 128.0


class CacheOrder(Accounts):
    """Base: subclasses set ``name`` and answer ``keys``. One level, no quanta: nobody is displaced.

    most_waiting: with more calls waiting than this the order is that of arrival
        (matching all of them would cost more than it saves). Infinity: never.
    """

    reads_cache = True
    tracks_wait = True

    def __init__(self, *, most_waiting: float = MOST_WAITING, table: ProcessTable | None = None) -> None:
        super().__init__(table)
        self.most_waiting = at_least("most_waiting", most_waiting, 0.0)
        self._cache: CacheView | None = None
        self._waiting: dict[int, Call] = {}
        self._keys: dict[int, float] = {}

    def attach(self, cache: CacheView) -> None:
        """The engine's cache; before any call."""
        self._cache = cache

    def keys(self, prefixes: Mapping[int, Sequence[Segment]]) -> dict[int, float]:
        """The keys of the waiting calls, given each one's cached prefix, by ``Call.seq``."""
        raise NotImplementedError

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """Nothing is known of its prefix before the next boundary."""
        self._admit(call, snap, now)
        self._waiting[call.seq] = call
        self._keys[call.seq] = FIRST.key
        return FIRST

    def start(self, call: Call, now: float) -> None:  # noqa: ARG002
        """Only waiting calls have an order."""
        self._waiting.pop(call.seq, None)

    def stop(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """It waits again."""
        self._waiting[call.seq] = call

    def next_due(self) -> float:
        """At once while calls wait."""
        return 0.0 if self._waiting else INF

    def due(self, now: float) -> list[tuple[Call, Slot]]:  # noqa: ARG002
        """The waiting calls whose key changed. Raises ValueError without a cache to read."""
        changed = []
        for seq, key in self._order().items():
            if self._keys[seq] != key:
                self._keys[seq] = key
                changed.append((self._waiting[seq], Slot(0, key, INF)))
        return changed

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Leave and charge."""
        self._waiting.pop(call.seq, None)
        del self._keys[call.seq]
        super().finish(call, usage, now)

    def _order(self) -> dict[int, float]:
        if self._cache is None:
            raise ValueError(f"{self.name} reads the prefix cache, but its engine attached none")
        if len(self._waiting) > self.most_waiting:
            return dict.fromkeys(self._waiting, FIRST.key)
        prefix = self._cache.prefix
        return self.keys({seq: prefix(call) for seq, call in self._waiting.items()})
