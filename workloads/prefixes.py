"""A radix index of token sequences given as segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vocabulary import Segment

_LONGEST = -1  # segment lengths are never negative


class PrefixIndex:
    """Finds the longest prefix a prompt shares with any sequence added before.

    A node maps a segment id to the longest piece of it seen here and, by length,
    to what followed. Sequences with different lengths of a segment part where the
    shorter one ends.
    """

    def __init__(self) -> None:
        self._root: dict[int, dict[int, Any]] = {}

    def longest(self, prompt: Iterable[Segment]) -> int:
        """Shared leading tokens."""
        node: dict[int, Any] = self._root
        total = 0
        for segment, length in prompt:
            seen = node.get(segment)
            if seen is None:
                return total
            total += min(length, seen[_LONGEST])
            following = seen.get(length)
            if following is None:
                break
            node = following
        return total

    def add(self, sequence: Iterable[Segment]) -> None:
        """Remember a sequence."""
        node = self._root
        for segment, length in sequence:
            seen = node.get(segment)
            if seen is None:
                node[segment] = seen = {_LONGEST: length}
            elif length > seen[_LONGEST]:
                seen[_LONGEST] = length
            node = seen.setdefault(length, {})
