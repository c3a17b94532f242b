"""In which order kept KV is given up where a call lacks blocks: the same rule in every engine."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from systems.protocols import Kept

Key = tuple[int, str]
"""(program, thread): who left it, and whose next call takes it over."""
Victims = Callable[[Sequence[Kept], float], Sequence[Kept]]


def key_of(kept: Kept) -> Key:
    """Whose it is."""
    return kept.program, kept.thread


def by_deadline(kept: Iterable[Kept]) -> Sequence[Kept]:
    """The default: the smallest priority first, then the earliest deadline."""
    return sorted(kept, key=lambda one: (one.priority, one.until))


def giving_up(kept: Sequence[Kept], victims: Victims | None, now: float) -> list[Key]:
    """Everything that is kept: in the order of ``victims``, then what it leaves out by ``by_deadline``.

    What it names twice counts once, what is not kept not at all.
    """
    known = {key_of(one) for one in kept}
    first = [key_of(one) for one in victims(kept, now)] if victims is not None else []
    order = dict.fromkeys(key for key in first if key in known)
    if len(order) < len(known):
        order |= dict.fromkeys(key_of(one) for one in by_deadline(kept))
    return list(order)


def at_the_head(waiting: Iterable[tuple[Any, Key]], kept: Container[Key]) -> set[Key]:
    """Threads of ``waiting`` calls, (order, thread), before the first for whose thread nothing is kept."""
    calls = list(waiting)
    first = min((order for order, key in calls if key not in kept), default=None)
    return {key for order, key in calls if first is None or order < first}
