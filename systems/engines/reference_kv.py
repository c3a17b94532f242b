"""KV blocks and the prefix cache of the reference engine, one object per block.

docs/engine.md, "KV blocks and the prefix cache", taken literally: content is
spelled out instead of hashed, and nothing is shared that could be recounted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vocabulary import BLOCK, Segment

Content = tuple[Segment, ...]
"""Everything up to a block's end: segments, the last one cut to what lies before it."""


def content_of(segments: Iterable[Segment], tokens: int) -> Content:
    """The first ``tokens`` tokens of ``segments``; equal exactly where all (id, offset) pairs are."""
    content: list[Segment] = []
    for segment, length in segments:
        taken = min(length, tokens)
        if taken > 0:
            content.append((segment, taken))
            tokens -= taken
    return tuple(content)


@dataclass(slots=True, eq=False)
class Block:
    """One block of 16 tokens: its cached content, if any, and how many calls use it.

    ``entry``: when that content was entered, by count; ``pins``: for how many threads it is kept.
    """

    content: Content | None = None
    users: int = 0
    entry: int = 0
    pins: int = 0


class KVBlocks:
    """``total`` blocks: in use, free without cached content, or free with it, kept or not.

    ``evicted`` counts the blocks whose cached content was overwritten; ``on_evict`` is told of each.
    """

    def __init__(
        self, total: int, prefix_cache: bool, on_evict: Callable[[Content], None] = lambda _: None
    ) -> None:
        self.total = total
        self.prefix_cache = prefix_cache
        self.on_evict = on_evict
        self.evicted = 0
        self._plain = [Block() for _ in range(total)]
        self._idle: list[Block] = []  # least recently freed first
        self._kept: list[Block] = []  # with content, used by nobody, kept
        self._entries = 0
        self._cached: dict[Content, list[Block]] = {}  # per content, entered first first

    @property
    def free(self) -> int:
        """Blocks nobody uses, with or without cached content, kept ones included."""
        return self.at_once + len(self._kept)

    @property
    def at_once(self) -> int:
        """Free blocks that are not kept."""
        return len(self._plain) + len(self._idle)

    @property
    def cached_free(self) -> int:
        """Free blocks that still hold cached content."""
        return len(self._idle) + len(self._kept)

    @property
    def used(self) -> int:
        """Blocks somebody uses."""
        return self.total - self.free

    def find(self, segments: Sequence[Segment], tokens: int) -> list[Block]:
        """The leading blocks of a call of ``tokens`` tokens that are cached now.

        At most ``(tokens - 1) // 16``: the last token is always computed.
        """
        hits: list[Block] = []
        for end in range(BLOCK, tokens, BLOCK):
            same = self._cached.get(content_of(segments, end))
            if same is None:
                break
            hits.append(same[0])
        return hits

    def share(self, blocks: Iterable[Block]) -> None:
        """One more call uses ``blocks``."""
        for block in blocks:
            if block.users == 0:
                (self._kept if block.pins else self._idle).remove(block)
            block.users += 1

    def allocate(self, count: int) -> list[Block]:
        """``count`` free blocks for one call: plain ones first, then the longest idle."""
        return [self._take() for _ in range(count)]

    def _take(self) -> Block:
        if self._plain:
            block = self._plain.pop()
        else:
            block = self._idle.pop(0)
            self.on_evict(self._forget(block))
            self.evicted += 1
        block.users = 1
        return block

    def enter(self, blocks: Sequence[Block], segments: Sequence[Segment], tokens: int) -> None:
        """Cache a call's full blocks among its first ``tokens`` tokens, where not done yet."""
        if not self.prefix_cache:
            return
        for index in range(tokens // BLOCK):
            block = blocks[index]
            if block.content is None:
                block.content = content_of(segments, (index + 1) * BLOCK)
                self._entries += 1
                block.entry = self._entries
                self._cached.setdefault(block.content, []).append(block)

    def release(self, blocks: Sequence[Block]) -> None:
        """A call lets go of its blocks, tail first."""
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                self._put(block)

    def pin(self, blocks: Iterable[Block]) -> None:
        """``blocks``, all with content, are kept for one thread more."""
        for block in blocks:
            if block.users == 0 and block.pins == 0:
                self._idle.remove(block)
                self._kept.append(block)
            block.pins += 1

    def unpin(self, blocks: Sequence[Block]) -> None:
        """They are kept for one thread less, tail first."""
        for block in reversed(blocks):
            block.pins -= 1
            if block.users == 0 and block.pins == 0:
                self._kept.remove(block)
                self._put(block)

    def to_front(self, blocks: Iterable[Block]) -> int:
        """Those that nobody uses or keeps are evicted next, in this order; how many."""
        moved = [block for block in blocks if block.users == block.pins == 0]
        for block in moved:
            self._idle.remove(block)
        self._idle = moved + self._idle
        return len(moved)

    def _put(self, block: Block) -> None:
        """Nobody uses it any more."""
        if block.pins:
            self._kept.append(block)
        else:
            (self._plain if block.content is None else self._idle).append(block)

    def _forget(self, block: Block) -> Content:
        content = block.content
        assert content is not None
        same = self._cached[content]
        same.remove(block)
        if not same:
            del self._cached[content]
        block.content = None
        return content

    def check(self, held: Iterable[Sequence[Block]], kept: Iterable[Sequence[Block]] = ()) -> None:
        """Recount, given the blocks of every call and of everything kept. Raises AssertionError."""
        users = Counter(block for blocks in held for block in blocks)
        pins = Counter(block for blocks in kept for block in blocks)
        places = [*users, *self._plain, *self._idle, *self._kept]
        assert len(places) == len(set(places)) == self.total, "a block is lost or in two places"
        assert all(block.users == users[block] for block in places), "a user count is wrong"
        assert all(block.pins == pins[block] for block in places), "a pin is lost"
        assert all(block.pins for block in self._kept), "a kept block that nobody keeps"
        assert all(not block.pins for block in self._idle), "a block that may be evicted, and is kept"
        assert all(block.content is None for block in self._plain), "a plain block has content"
        assert all(block.content is not None for block in self._idle + self._kept), "an idle block has none"
        entered = [(content, block) for content, same in self._cached.items() for block in same]
        assert len(entered) == len({block for _, block in entered}), "a block is cached twice"
        assert all(block.content == content for content, block in entered), "stale content"
        assert len(entered) == sum(block.content is not None for block in places), "uncounted content"
