"""Which engine a program stays at, and the choice among equals: what routers share."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

from vocabulary import Call, EngineView

MOST_PINS = 1 << 20
"""A front end that never hears of a program's end forgets the pins that were not used for longest."""


def alive(call: Call, engines: Sequence[EngineView]) -> list[EngineView]:
    """The live engines. Raises LookupError if there is none."""
    found = [engine for engine in engines if engine.alive]
    if not found:
        raise LookupError(f"no engine is alive to take call {call.seq} ({len(engines)} known)")
    return found


def least_used(engines: Sequence[EngineView]) -> int:
    """The engine with the fewest calls, waiting and running; the lowest id among equals."""
    return min((engine.calls, engine.id) for engine in engines)[1]


class Pins:
    """Engine ids by program, at most ``most`` of them."""

    def __init__(self, most: int = MOST_PINS) -> None:
        self._most = most
        self._engines: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._engines)

    def of(self, program: int, engines: Sequence[EngineView]) -> int | None:
        """The program's engine if it is among ``engines``."""
        engine = self._engines.get(program)
        if engine is None or all(view.id != engine for view in engines):
            return None
        self._engines.move_to_end(program)
        return engine

    def pin(self, program: int, engine: int) -> int:
        """Keep the program at ``engine``, which is returned."""
        self._engines[program] = engine
        self._engines.move_to_end(program)
        if len(self._engines) > self._most:
            self._engines.popitem(last=False)
        return engine

    def by_engine(self) -> Counter[int]:
        """How many programs each engine has."""
        return Counter(self._engines.values())

    def end(self, program: int) -> None:
        """The program is over."""
        self._engines.pop(program, None)
