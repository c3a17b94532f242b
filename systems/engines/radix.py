"""Paged KV with a prefix cache kept as extents, exact to the block.

vLLM keeps a hash per block; here a run of blocks with one history is one
node of a radix tree, so a multi-turn program costs O(1) nodes a call. The
result is the same block for block: free order, eviction order (least
recently freed first, tail first), in-use hits, and duplicates, which vLLM
does not merge: equal blocks are *twins*, and look-ups find the oldest alive.

A run is split where a hit ends inside it; the lower part keeps its identity
(its place in the free queue, its holders), the upper part is new. A holder
remembers where its run began, so releasing also releases the upper parts.
"""

from __future__ import annotations

from bisect import bisect_right

from vocabulary import BLOCK

BlockKey = tuple[int, ...]


class Run:
    """Blocks ``start .. start+n-1`` of the token sequence (ids, ends), all used alike.

    ``refs`` calls hold it; 0 means idle: evictable, linked in the free queue.
    ``home[key]`` is where look-ups find it (or its oldest living twin).
    """

    __slots__ = ("above", "children", "dead", "ends", "home", "ids", "key", "n", "next",
                 "prev", "refs", "start", "twins")  # fmt: skip

    def __init__(self, ids: list[int], ends: list[int], start: int, n: int) -> None:
        self.ids = ids
        self.ends = ends
        self.start = start
        self.n = n
        self.refs = 1
        self.dead = False
        self.children: dict[BlockKey, Run] = {}
        self.twins: list[Run] | None = None
        self.above: Run | None = None
        self.home: dict[BlockKey, Run]
        self.key: BlockKey
        self.prev: Run
        self.next: Run


NOWHERE = Run([], [], 0, 0)
"""Both neighbours of a run that leaves the queue: links to real ones would wait for the cycle collector."""

Held = tuple[Run, int]
"""(run, first block of it that is held)."""
Path = list[tuple[Run, int]]
"""(run, leading blocks of it that match), root first."""


def block_key(ids: list[int], ends: list[int], i: int, token: int) -> BlockKey:
    """The content of the block that starts at ``token``, which lies in segment ``i``."""
    begin = ends[i - 1] if i else 0
    last = token + BLOCK
    if ends[i] >= last:
        return (ids[i], token - begin)
    parts = [ids[i], token - begin]
    while ends[i] < last:
        parts.append(ends[i] - token)
        i += 1
        parts.append(ids[i])
    return tuple(parts)


def segment_at(ends: list[int], token: int) -> int:
    """Index of the segment that holds ``token``."""
    return bisect_right(ends, token)


def _agree(run: Run, ids: list[int], ends: list[int], i: int, token: int, n: int) -> int:
    """How many of the first ``n`` blocks of ``run`` have this content; the first one does.

    Up to ``token``, in segment ``i``, the two sequences are the same, so their segments are.
    """
    limit = token + n * BLOCK
    rids, rends = run.ids, run.ends
    end = 0
    while end < limit:
        if rids[i] != ids[i]:
            break
        end = ends[i]
        if rends[i] != end:
            end = min(end, rends[i])
            break
        i += 1
    return (min(end, limit) - token) // BLOCK


class RadixKV:
    """``total`` blocks: in use, idle (free but cached), or plain free."""

    __slots__ = ("caching", "evicted", "idle", "plain", "queue", "root", "total")

    def __init__(self, total: int, caching: bool = True) -> None:
        self.total = total
        self.plain = total
        self.idle = 0
        self.evicted = 0
        self.caching = caching
        self.root: dict[BlockKey, Run] = {}
        self.queue = Run([], [], 0, 0)  # sentinel of the free queue: next = evicted first
        self.queue.prev = self.queue.next = self.queue

    def free(self) -> int:
        """Blocks an allocation may take."""
        return self.plain + self.idle

    def match(self, ids: list[int], ends: list[int], cap: int) -> tuple[Path, int, int]:
        """Longest cached prefix of at most ``cap`` blocks: (path, blocks, blocks of it in use)."""
        path: Path = []
        pos = used = i = 0
        home = self.root
        while pos < cap and home:
            token = pos * BLOCK
            while ends[i] <= token:
                i += 1
            if ends[i] >= token + BLOCK:
                run = home.get((ids[i], token - ends[i - 1] if i else token))
            else:
                run = home.get(block_key(ids, ends, i, token))
            if run is None or run.dead:
                break
            n = run.n if run.n < cap - pos else cap - pos
            m = n if n == 1 or run.ids is ids else _agree(run, ids, ends, i, token, n)
            path.append((run, m))
            pos += m
            if run.refs:
                used += m
            if m < run.n:
                break
            home = run.children
        return path, pos, used

    def hold(self, path: Path) -> list[Held]:
        """Take the hit blocks into use."""
        chain: list[Held] = []
        for run, m in path:
            if m < run.n:
                run = self.split(run, m)
            if run.refs == 0:
                unlink(run)
                self.idle -= run.n
            run.refs += 1
            chain.append((run, run.start))
        return chain

    def take(self, blocks: int) -> None:
        """Allocate ``blocks`` (at most ``free()``): plain ones first, then the oldest idle."""
        plain = self.plain
        if blocks <= plain:
            self.plain = plain - blocks
            return
        blocks -= plain
        self.plain = 0
        self.idle -= blocks
        self.evicted += blocks
        head = self.queue
        run = head.next
        if run.n <= blocks:
            while 0 < run.n <= blocks:  # the queue's own end has none
                blocks -= run.n
                _forget(run)
                following = run.next
                run.prev = run.next = NOWHERE
                run = following
            head.next = run  # what was before it is gone
            run.prev = head
        if blocks:
            run.n -= blocks
            if run.children:
                run.children.clear()

    def cache(self, chain: list[Held], ids: list[int], ends: list[int], have: int, end: int) -> None:
        """Enter blocks ``have .. end-1`` of the sequence, held by the owner of ``chain``.

        ``have`` blocks are held through ``chain`` already.
        """
        if chain:  # the common case by itself: a prompt or a reply goes on
            last = chain[-1][0]
            if last.refs == 1 and not last.children and last.twins is None:
                last.ids, last.ends = ids, ends
                last.n += end - have
                return
        if not self.caching:
            return
        while have < end:
            above = chain[-1][0] if chain else None
            if above is not None and above.refs == 1 and not above.children and above.twins is None:
                above.ids, above.ends = ids, ends
                above.n += end - have
                return
            home = above.children if above is not None else self.root
            token = have * BLOCK
            key = block_key(ids, ends, segment_at(ends, token), token)
            there = home.get(key)
            run = Run(ids, ends, have, end - have if there is None else 1)
            run.home, run.key = home, key
            if there is None or there.dead:
                home[key] = run
            if there is not None:
                run.children = self._beside(there, run)
            chain.append((run, have))
            have += run.n

    def release(self, chain: list[Held]) -> None:
        """Give the blocks held through ``chain`` back, tail first."""
        tail = self.queue
        for run, start in reversed(chain):
            while True:
                run.refs -= 1
                if run.refs == 0:
                    self.idle += run.n
                    before = tail.prev
                    run.prev, run.next = before, tail
                    before.next = tail.prev = run
                if run.start <= start:
                    break
                assert run.above is not None
                run = run.above

    def _beside(self, there: Run, run: Run) -> dict[BlockKey, Run]:
        """Make ``run`` a twin of the one block ``there``; returns the children they share."""
        if there.dead:
            return there.children
        if there.n > 1:
            there = self.split(there, 1)
        if there.twins is None:
            there.twins = [there]
        there.twins.append(run)
        run.twins = there.twins
        return there.children

    def split(self, run: Run, m: int) -> Run:
        """Cut ``run`` after ``m`` blocks; returns the new upper part.

        An idle upper part is linked right behind the lower one (it is evicted
        later), which is where it was.
        """
        upper = Run(run.ids, run.ends, run.start, m)
        upper.refs = run.refs
        upper.home, upper.key, upper.above = run.home, run.key, run.above
        upper.home[upper.key] = upper
        run.start += m
        run.n -= m
        run.above = upper
        run.home = upper.children
        token = run.start * BLOCK
        run.key = block_key(run.ids, run.ends, segment_at(run.ends, token), token)
        run.home[run.key] = run
        if run.refs == 0:
            after = run.next
            upper.prev, upper.next = run, after
            run.next = after.prev = upper
        return upper


def unlink(run: Run) -> None:
    """Take an idle run out of the free queue."""
    run.prev.next = run.next
    run.next.prev = run.prev
    run.prev = run.next = NOWHERE


def _forget(run: Run) -> None:
    """An evicted run leaves the tree; a hole stays while blocks below it live on."""
    twins = run.twins
    if twins is not None:
        twins.remove(run)
        run.home[run.key] = twins[0]
        if len(twins) == 1:
            twins[0].twins = None
    elif run.n == 1 and run.children:
        run.dead = True
    else:
        del run.home[run.key]
