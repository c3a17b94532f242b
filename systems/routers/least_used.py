"""The engine with the fewest calls in it (Autellix, Algorithm 2 without its pins)."""

from __future__ import annotations

from collections.abc import Sequence

from vocabulary import Call, EngineView


class LeastUsed:
    """Fewest calls, waiting and running; the lowest id among equals."""

    name = "least-used"

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """The engine's id. Raises LookupError if none is alive."""
        alive = [(engine.calls, engine.id) for engine in engines if engine.alive]
        if not alive:
            raise LookupError(f"no engine is alive to take call {call.seq} ({len(engines)} known)")
        return min(alive)[1]


ROUTER = LeastUsed
