"""Host memory of the reference engine: copies of swapped calls, and content evicted from the GPU.

docs/engine-options.md, "Preemption swap" and "Host tier". Blocks of 16 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from systems.engines.reference_kv import Content, content_of
from vocabulary import BLOCK, Segment


class HostMemory:
    """``total`` blocks, ``swapped`` of them in copies of calls; the tier has what room is left.

    ``entered`` and ``dropped`` count the tier's blocks that came, and that had to go.
    Without ``keeps`` nothing evicted is kept.
    """

    def __init__(self, total: int, keeps: bool) -> None:
        self.total = total
        self.keeps = keeps
        self.swapped = 0
        self.entered = 0
        self.dropped = 0
        self._tier: list[Content] = []  # least recently entered first

    @property
    def tier(self) -> int:
        """Blocks of evicted content."""
        return len(self._tier)

    def copy_in(self, blocks: int) -> bool:
        """Keep a call's copy of ``blocks``, at the expense of the tier; False if there is no room."""
        if blocks > self.total - self.swapped:
            return False
        self.swapped += blocks
        self._shrink()
        return True

    def give_up(self, blocks: int) -> None:
        """A copy of ``blocks`` is not needed any more."""
        self.swapped -= blocks

    def enter(self, content: Content) -> None:
        """Content was evicted from the GPU: it becomes the most recent here."""
        if not self.keeps or self.swapped == self.total:
            return
        if content in self._tier:
            self._tier.remove(content)
        else:
            self.entered += 1
        self._tier.append(content)
        self._shrink()

    def find(self, segments: Sequence[Segment], tokens: int, skip: int) -> list[Content]:
        """What is here, without a gap, of a call of ``tokens`` tokens behind its first ``skip`` blocks.

        Those and the found ones together are at most ``(tokens - 1) // 16``.
        """
        found: list[Content] = []
        for end in range(BLOCK * (skip + 1), tokens, BLOCK):
            content = content_of(segments, end)
            if content not in self._tier:
                break
            found.append(content)
        return found

    def fetch(self, contents: Iterable[Content]) -> None:
        """``contents`` move to the GPU."""
        for content in contents:
            self._tier.remove(content)

    def _shrink(self) -> None:
        while self.swapped + self.tier > self.total:
            self._tier.pop(0)
            self.dropped += 1

    def check(self, copies: Iterable[int], fetched: int) -> None:
        """Recount, given the blocks of every copy and how many were fetched. Raises AssertionError."""
        assert self.swapped == sum(copies), "a copy is lost, or kept for nobody"
        assert self.swapped + self.tier <= self.total, "more blocks than host memory has"
        assert len(set(self._tier)) == self.tier, "content is in host memory twice"
        assert self.entered == fetched + self.tier + self.dropped, "a block of the tier is lost"
