"""Which threads are away, since when, and what became of it: the book behind every policy that learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from systems.protocols import Away
from vocabulary import BLOCK, INF, blocks_for

MOST = 2**16
"""Threads in the book; beyond that the one that has been away longest is forgotten."""


@dataclass(slots=True, eq=False)
class Absence:
    """One thread from the end of a call to the end of its next one.

    ``since``, ``until`` (kept until) and ``returned`` are times (s); ``returned`` is INF while it is away.
    ``own``: tokens of it that no others keep, ``blocks`` of them.
    """

    away: Away
    since: float
    until: float = 0.0
    returned: float = INF
    own: int = field(init=False)
    blocks: int = field(init=False)

    def __post_init__(self) -> None:
        self.share(0)

    def share(self, tokens: int) -> None:
        """The first ``tokens`` of its context are others', too: only the rest goes if it is evicted."""
        self.own = max(0, self.away.tokens - tokens)
        self.blocks = max(1, blocks_for(self.own))

    def lost(self, cached_tokens: int, prompt_tokens: int) -> int:
        """Tokens of what it left that had to be computed again.

        Only whole blocks can be found again, and the last token of a reply is never in the cache.
        """
        findable = (min(self.away.tokens, prompt_tokens) - 1) // BLOCK * BLOCK
        return max(0, findable - cached_tokens)


class Absences:
    """By program and thread, in the order of leaving."""

    def __init__(self) -> None:
        self._threads: dict[tuple[int, str], Absence] = {}
        self._programs: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._threads)

    def __iter__(self) -> Iterator[Absence]:
        return iter(self._threads.values())

    def get(self, program: int, thread: str) -> Absence | None:
        """The thread's absence; None if it is not in the book."""
        return self._threads.get((program, thread))

    def leave(self, absence: Absence) -> list[Absence]:
        """Enter it; what it takes the place of, whose end nobody will say any more."""
        program, thread = absence.away.program, absence.away.thread
        replaced = [old for old in [self.take(program, thread)] if old is not None]
        if len(self._threads) >= MOST:
            replaced += [self._forget(next(iter(self._threads)))]
        self._threads[program, thread] = absence
        self._programs.setdefault(program, set()).add(thread)
        return replaced

    def take(self, program: int, thread: str) -> Absence | None:
        """Out of the book; None if it was not in it."""
        return self._forget((program, thread)) if (program, thread) in self._threads else None

    def end(self, program: int) -> list[Absence]:
        """All of the program, out of the book, by thread."""
        return [self._forget((program, thread)) for thread in sorted(self._programs.get(program, ()))]

    def _forget(self, key: tuple[int, str]) -> Absence:
        threads = self._programs[key[0]]
        threads.discard(key[1])
        if not threads:
            del self._programs[key[0]]
        return self._threads.pop(key)
