"""A program stays at one engine, where its KV is: session affinity, as load balancers do it.

With ``by = hash`` the engine follows from the program alone (rendezvous
hashing, so the loss of an engine moves its own programs only); the others
choose when the program first calls, and again if its engine is dead.
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.routers.hashing import hashed
from systems.routers.pins import Pins, alive, least_used
from vocabulary import Call, EngineView

WAYS = ("hash", "sticky", "footprint", "programs")


class SessionPinned:
    """``by``: how a program gets its engine.

    "hash": by its number. "sticky" (default): the engine with the fewest calls.
    "footprint": the one with the fewest KV blocks in use or cached. "programs": the
    one with the fewest programs that are not over, as vLLM's router (sticky_least_loaded)
    does it. The lowest id among equals.
    """

    name = "session-pinned"

    def __init__(self, *, by: str = "sticky") -> None:
        if by not in WAYS:
            raise ValueError(f"by must be one of {', '.join(WAYS)}; got {by!r}")
        self.by = by
        self._pins = Pins()

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """The engine's id. Raises LookupError if none is alive."""
        living = alive(call, engines)
        if self.by == "hash":
            return max((hashed(call.program, view.id), view.id) for view in living)[1]
        pinned = self._pins.of(call.program, living)
        if pinned is not None:
            return pinned
        return self._pins.pin(call.program, self._first(living))

    def end(self, program: int) -> None:
        """The program is over."""
        self._pins.end(program)

    def _first(self, engines: Sequence[EngineView]) -> int:
        if self.by == "sticky":
            return least_used(engines)
        if self.by == "programs":
            pinned = self._pins.by_engine()
            return min((pinned[view.id], view.id) for view in engines)[1]
        return min((view.kv_used + view.kv_cached, view.calls, view.id) for view in engines)[2]


ROUTER = SessionPinned
