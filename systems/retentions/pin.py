"""Pinning: what a program leaves is kept for its next call, whoever waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from systems.knobs import flag
from systems.protocols import Away, Kept
from systems.retentions.firm import finite
from vocabulary import INF

FIRM_S = 60.0
"""How long a firm pin lasts if nobody says: most tools are over by then, and nobody waits longer for one."""


class Pin:
    """Everything is kept, for ``seconds``; the one whose time is up first is given up first.

    ``firm`` (default): newcomers wait for it (systems.protocols.Keeping); then ``seconds`` must be finite,
    and is 60 if it is left out. Else it is given up wherever a call lacks blocks, and lasts until the
    program is over if ``seconds`` is left out.
    """

    name = "pin"

    def __init__(self, *, seconds: float | None = None, firm: bool = True) -> None:
        self.firm = flag("firm", firm)
        if seconds is None:
            seconds = FIRM_S if self.firm else INF
        self.seconds = finite("seconds", seconds, self.firm)

    def idle(self, away: Away, now: float) -> float:  # noqa: ARG002
        """``seconds`` from now."""
        return now + self.seconds

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:  # noqa: ARG002
        """By deadline, program and thread."""
        return sorted(candidates, key=lambda kept: (kept.until, kept.program, kept.thread))


RETENTION = Pin
