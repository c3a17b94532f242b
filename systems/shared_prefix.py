"""What contexts on an engine have in common at the start of their prompts, counted once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from vocabulary import Segment

LEADING = 16
"""So many segments of a prompt are looked at: system prompt, tools, task."""
_Key = tuple[int, int, Segment]
"""(engine, position, segment)."""


class SharedPrefix:
    """Whole leading segments that at least two contexts on an engine begin with; a context has a name.

    ``once[engine]``: tokens of those that somebody leaves out of its own weight, each counted once. The
    first of several still carries a prefix that the others leave out until it joins again, so that the sum
    is never too small.
    """

    def __init__(self) -> None:
        self.once: dict[int, int] = {}
        self._there: dict[_Key, int] = {}
        self._left_out: dict[_Key, int] = {}
        self._of: dict[Hashable, tuple[list[_Key], int]] = {}

    def join(self, name: Hashable, prompt: Sequence[Segment], engine: int) -> int:
        """It is on ``engine``; the tokens that it leaves out of its own weight."""
        self.part(name)
        keys = _keys(prompt, engine)
        for key in keys:
            self._there[key] = self._there.get(key, 0) + 1
        shared = self._shared(keys, 2)
        for key in keys[:shared]:
            _add(self._left_out, key, 1)
            if self._left_out[key] == 1:
                self.once[engine] = self.once.get(engine, 0) + key[2][1]
        self._of[name] = (keys, shared)
        return sum(key[2][1] for key in keys[:shared])

    def part(self, name: Hashable) -> None:
        """It is there no more."""
        keys, shared = self._of.pop(name, ([], 0))
        for key in keys[:shared]:
            _add(self._left_out, key, -1)
            if key not in self._left_out:
                _add(self.once, key[0], -key[2][1])
        for key in keys:
            _add(self._there, key, -1)

    def lead(self, prompt: Sequence[Segment], engine: int) -> int:
        """Tokens it would find there, if it came."""
        keys = _keys(prompt, engine)
        return sum(key[2][1] for key in keys[: self._shared(keys, 1)])

    def _shared(self, keys: list[_Key], least: int) -> int:
        count = 0
        while count < len(keys) and self._there.get(keys[count], 0) >= least:
            count += 1
        return count


def _keys(prompt: Sequence[Segment], engine: int) -> list[_Key]:
    return [(engine, i, segment) for i, segment in enumerate(prompt)]


def _add(books: dict, key: object, amount: int) -> None:  # type: ignore[type-arg]
    total = books.get(key, 0) + amount
    if total:
        books[key] = total
    else:
        books.pop(key, None)
