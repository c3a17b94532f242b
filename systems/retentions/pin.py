"""Pinning: what a program leaves is kept for its next call, whoever waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from systems.protocols import Away, Kept
from systems.schedulers.knobs import at_least
from vocabulary import INF


class Pin:
    """Everything is kept, for ``seconds``; infinity, the default, is until the program is over.

    Pins are given up only where a call lacks blocks: the one whose time is up first, then by program.
    """

    name = "pin"

    def __init__(self, *, seconds: float = INF) -> None:
        self.seconds = at_least("seconds", seconds, 0.0)

    def idle(self, away: Away, now: float) -> float:  # noqa: ARG002
        """``seconds`` from now."""
        return now + self.seconds

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:  # noqa: ARG002
        """By deadline, program and thread."""
        return sorted(candidates, key=lambda kept: (kept.until, kept.program, kept.thread))


RETENTION = Pin
