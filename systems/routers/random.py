"""An engine at random: the usual yardstick of load balancing.

A policy draws no random numbers of its own; the engine is a keyed hash of the
call's number, so a run repeats itself and another salt is another draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.routers.hashing import hashed
from systems.routers.pins import alive
from vocabulary import Call, EngineView


class Random:
    """Each live engine is equally likely for each call. ``salt``: a whole number, at least 0; default 0."""

    name = "random"

    def __init__(self, *, salt: int = 0) -> None:
        if isinstance(salt, bool) or not isinstance(salt, int) or salt < 0:
            raise ValueError(f"salt must be a whole number of at least 0, got {salt!r}")
        self.salt = salt

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """The engine's id. Raises LookupError if none is alive."""
        ids = sorted(engine.id for engine in alive(call, engines))
        return ids[hashed(self.salt, call.seq) % len(ids)]


ROUTER = Random
