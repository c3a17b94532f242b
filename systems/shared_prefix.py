"""What contexts on an engine have in common at the start of their prompts, counted once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from vocabulary import Segment

Name = TypeVar("Name", bound=Hashable)

_Key = tuple[int, int]
"""(engine, the segments up to here): two prompts have a key in common exactly as far as they are alike."""


class SharedPrefix(Generic[Name]):
    """Whole leading segments that at least two contexts on an engine begin with; a context has a name.

    ``once[engine]``: tokens of those, each counted once; ``left_out(name)``: tokens of them in one context.
    """

    def __init__(self) -> None:
        self.once: dict[int, int] = {}
        self._there: dict[_Key, dict[Name, None]] = {}
        self._of: dict[Name, list[tuple[_Key, int]]] = {}
        self._left_out: dict[Name, int] = {}

    def left_out(self, name: Name) -> int:
        """Tokens of the context that others have, too; 0 for one that is not there."""
        return self._left_out.get(name, 0)

    def join(self, name: Name, prompt: Sequence[Segment], engine: int) -> set[Name]:
        """It is on ``engine``, and nowhere else; others whose ``left_out`` has changed by that."""
        changed = self.part(name)
        keys = self._of[name] = _keys(prompt, engine)
        self._left_out[name] = 0
        for key, tokens in keys:
            names = self._there.setdefault(key, {})
            names[name] = None
            if len(names) == 2:
                self._once(engine, tokens)
                changed |= self._add(names, tokens)
            elif len(names) > 2:
                self._left_out[name] += tokens
        return changed - {name}

    def part(self, name: Name) -> set[Name]:
        """It is there no more; others whose ``left_out`` has changed by that."""
        changed: set[Name] = set()
        for key, tokens in self._of.pop(name, ()):
            names = self._there[key]
            del names[name]
            if not names:
                del self._there[key]
            elif len(names) == 1:
                self._once(key[0], -tokens)
                changed |= self._add(names, -tokens)
        self._left_out.pop(name, None)
        return changed

    def lead(self, prompt: Sequence[Segment], engine: int) -> int:
        """Tokens it would find there, if it came."""
        found = 0
        for key, tokens in _keys(prompt, engine):
            if key not in self._there:
                break
            found += tokens
        return found

    def _once(self, engine: int, tokens: int) -> None:
        total = self.once.pop(engine, 0) + tokens
        if total:
            self.once[engine] = total

    def _add(self, names: dict[Name, None], tokens: int) -> set[Name]:
        for name in names:
            self._left_out[name] += tokens
        return set(names)


def _keys(prompt: Sequence[Segment], engine: int) -> list[tuple[_Key, int]]:
    keys, so_far = [], 0
    for segment in prompt:
        so_far = hash((so_far, segment))  # of numbers: the same in every process
        keys.append(((engine, so_far), segment[1]))
    return keys
