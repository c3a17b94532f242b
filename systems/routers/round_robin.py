"""Engines in turn, call by call, whatever they have to do."""

from __future__ import annotations

from collections.abc import Sequence

from vocabulary import Call, EngineView


class RoundRobin:
    """The live engine with the next larger id, then again from the smallest."""

    name = "round-robin"

    def __init__(self) -> None:
        self._last: int | None = None

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """The engine's id. Raises LookupError if none is alive."""
        alive = [engine.id for engine in engines if engine.alive]
        if not alive:
            raise LookupError(f"no engine is alive to take call {call.seq} ({len(engines)} known)")
        last = self._last
        later = alive if last is None else [i for i in alive if i > last]
        self._last = min(later or alive)
        return self._last


ROUTER = RoundRobin
