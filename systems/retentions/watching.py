"""What retention policies that learn from returns have in common: the book, the looks, the events."""

from __future__ import annotations

import math
from collections.abc import Sequence

from systems.protocols import Away, Kept
from systems.retentions.absences import Absence, Absences
from vocabulary import INF, EngineView, KeepEvent

MOST_EVENTS = 2**16
"""Events that wait for a host; one that never fetches them loses the older half."""
Prices = tuple[float, float]
"""What keeping and what evicting costs, in block-seconds."""
UNPRICED: Prices = (math.nan, math.nan)


class Watching:
    """Base: subclasses say in ``verdict`` until when to keep, and may override what is below it.

    ``events``: a "keep" or "evict" when a thread goes away, a "back" or "gone" when that ends.
    """

    name = "watching"
    watches = True
    clairvoyant = False

    def __init__(self) -> None:
        self.events: list[KeepEvent] = []
        self.absences = Absences()
        self._looks: dict[int, tuple[EngineView, int]] = {}

    # -- for subclasses --------------------------------------------------------------

    def verdict(self, absence: Absence, now: float) -> tuple[float, Prices]:
        """Until when (s) to keep what the thread left, and the two prices."""
        raise NotImplementedError

    def learn(self, absence: Absence, seconds: float, returned: bool) -> None:
        """The thread was away that long; not ``returned``: its program ended or it was lost sight of."""

    def outcome(self, absence: Absence, lost: int, now: float) -> tuple[Prices, float]:  # noqa: ARG002
        """What both would have cost, and the regret, once ``lost`` tokens had to be computed again."""
        return UNPRICED, math.nan

    def forget(self, absence: Absence) -> None:
        """It has left the book."""

    def seen(self, engine: int) -> tuple[EngineView | None, int]:
        """The last look at an engine: its view and how many prompt tokens waited; None before the first."""
        return self._looks.get(engine, (None, 0))

    # -- for hosts -------------------------------------------------------------------

    def look(self, view: EngineView, waiting_tokens: int, now: float) -> None:  # noqa: ARG002
        """Remember it: ``idle`` comes next."""
        self._looks[view.id] = (view, waiting_tokens)

    def idle(self, away: Away, now: float) -> float:
        """Until when it is kept, by ``verdict``."""
        absence = Absence(away, now)
        for lost in self.absences.leave(absence):
            if lost.returned == INF:
                self.learn(lost, max(0.0, now - lost.since), False)
            self.forget(lost)
        absence.until, prices = self.verdict(absence, now)
        what = "keep" if absence.until > now else "evict"
        self._note(absence, now, what, away.tokens, prices, math.nan)
        return absence.until

    def called(self, program: int, thread: str, now: float) -> None:
        """It is back: one time away more is known."""
        absence = self.absences.get(program, thread)
        if absence is not None and absence.returned == INF:
            absence.returned = now
            self.learn(absence, max(0.0, now - absence.since), True)

    def back(self, program: int, thread: str, cached_tokens: int, prompt_tokens: int, now: float) -> None:
        """What it found; ``now`` counts as its return where the host did not say ``called``."""
        self.called(program, thread, now)
        absence = self.absences.take(program, thread)
        if absence is not None:
            lost = absence.lost(cached_tokens, prompt_tokens)
            prices, regret = self.outcome(absence, lost, absence.returned)
            self._note(absence, absence.returned, "back", lost, prices, regret)
            self.forget(absence)

    def end(self, program: int, now: float) -> None:
        """Its threads do not come back."""
        for absence in self.absences.end(program):
            if absence.returned == INF:
                self.learn(absence, max(0.0, now - absence.since), False)
                prices, regret = self.outcome(absence, 0, now)
                self._note(absence, now, "gone", 0, prices, regret)
            self.forget(absence)

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:  # noqa: ARG002
        """The one whose time is up first goes first; then by program and thread."""
        return sorted(candidates, key=lambda kept: (kept.until, kept.program, kept.thread))

    def _note(
        self, absence: Absence, now: float, what: str, tokens: int, prices: Prices, regret: float
    ) -> None:
        if len(self.events) >= MOST_EVENTS:
            del self.events[: MOST_EVENTS // 2]
        away, until = absence.away, absence.until
        self.events.append(
            KeepEvent(now, away.program, away.thread, what, away.tool, tokens, until, *prices, regret)
        )
