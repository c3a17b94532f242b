"""What programs on an engine have in common at the start of their prompts, counted once."""

from __future__ import annotations

from systems.gates.ledger import Program
from vocabulary import Segment

LEADING = 16
"""So many segments of a prompt are looked at: system prompt, tools, task."""
_Key = tuple[int, int, Segment]
"""(engine, position, segment)."""


class SharedPrefix:
    """Whole leading segments that at least two programs of an engine begin with.

    ``once[engine]``: tokens of those that somebody leaves out of its own weight, each counted once.
    Exact after ``settle``; between two of those the first of several programs still carries a prefix that
    the others leave out, so that the sum is never too small.
    """

    def __init__(self) -> None:
        self.once: dict[int, int] = {}
        self._there: dict[_Key, int] = {}
        self._left_out: dict[_Key, int] = {}
        self._of: dict[int, tuple[list[_Key], int]] = {}

    def join(self, program: Program, engine: int) -> int:
        """It runs on ``engine``; the tokens that it leaves out of its own weight."""
        self.part(program)
        keys = _keys(program, engine)
        for key in keys:
            self._there[key] = self._there.get(key, 0) + 1
        shared = self._shared(keys, 2)
        for key in keys[:shared]:
            _add(self._left_out, key, 1)
            if self._left_out[key] == 1:
                self.once[engine] = self.once.get(engine, 0) + key[2][1]
        self._of[program.id] = (keys, shared)
        return sum(key[2][1] for key in keys[:shared])

    def part(self, program: Program) -> None:
        """It runs there no more."""
        keys, shared = self._of.pop(program.id, ([], 0))
        for key in keys[:shared]:
            _add(self._left_out, key, -1)
            if key not in self._left_out:
                _add(self.once, key[0], -key[2][1])
        for key in keys:
            _add(self._there, key, -1)

    def lead(self, program: Program, engine: int) -> int:
        """Tokens it would find there, if it came."""
        keys = _keys(program, engine)
        return sum(key[2][1] for key in keys[: self._shared(keys, 1)])

    def _shared(self, keys: list[_Key], least: int) -> int:
        count = 0
        while count < len(keys) and self._there.get(keys[count], 0) >= least:
            count += 1
        return count


def _keys(program: Program, engine: int) -> list[_Key]:
    return [(engine, i, segment) for i, segment in enumerate(program.prompt[:LEADING])]


def _add(books: dict, key: object, amount: int) -> None:  # type: ignore[type-arg]
    total = books.get(key, 0) + amount
    if total:
        books[key] = total
    else:
        books.pop(key, None)
