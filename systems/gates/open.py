"""No gate: programs run when they come, as every engine does by itself."""

from __future__ import annotations

from collections.abc import Sequence

from systems.protocols import Resume
from vocabulary import INF, Call, EngineView, Usage


class Open:
    """Every call goes on at once. No knobs."""

    name = "open"

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:  # noqa: ARG002
        """True."""
        return True

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Nothing changes."""

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """Nothing changes."""

    def end(self, program: int, now: float) -> None:
        """Nothing changes."""

    def next_tick(self) -> float:
        """INF: it never acts by itself."""
        return INF

    def tick(self, engines: Sequence[EngineView], now: float) -> list[Resume]:  # noqa: ARG002
        """Nobody: nothing is ever held."""
        return []


GATE = Open
