"""Autellix's load balancer (arXiv 2502.13965, Algorithm 2): locality for long prompts only.

A short prompt costs little to compute again, and most of it (the system
prompt) is shared by all programs: it goes wherever there is least to do, and
binds its program to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.routers.pins import Pins, alive, least_used
from vocabulary import Call, EngineView


class Autellix:
    """Long prompts go to their program's engine, short ones to the least used.

    ``most_short``: tokens of the longest prompt that counts as short. 2 048 is
    the one constant the paper publishes. The paper does not say what happens
    to the programs of a dead engine; here they get another one.
    """

    name = "autellix"

    def __init__(self, *, most_short: int = 2048) -> None:
        if isinstance(most_short, bool) or not isinstance(most_short, int | float) or not most_short >= 0:
            raise ValueError(f"most_short must be a number of tokens of at least 0, got {most_short!r}")
        self.most_short = most_short
        self._pins = Pins()

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """The engine's id. Raises LookupError if none is alive."""
        living = alive(call, engines)
        if call.prompt_tokens <= self.most_short:
            return least_used(living)
        pinned = self._pins.of(call.program, living)
        if pinned is not None:
            return pinned
        return self._pins.pin(call.program, least_used(living))

    def end(self, program: int) -> None:
        """The program is over."""
        self._pins.end(program)


ROUTER = Autellix
