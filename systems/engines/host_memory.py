"""Host memory of the simulated engine: KV of swapped calls, and evicted content (docs/engine-options.md).

The tier files a block under the segment it ends in. Segments form a tree (a
node per history), so equal content has one key, found by walking a sequence's
segments; nodes without blocks below them are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from systems.engines.radix import RadixKV, Run
from systems.engines.request import Request
from vocabulary import BLOCK, blocks_for


class Segments:
    """One segment behind one history: its ``parent`` with a certain length, then segment ``id``.

    ``users``: blocks of the tier that end in it, and segments behind it.
    """

    __slots__ = ("behind", "key", "parent", "users")

    def __init__(self, parent: Segments | None, key: tuple[int, int]) -> None:
        self.parent = parent
        self.key = key  # (length of the parent, own id)
        self.behind: dict[tuple[int, int], Segments] = {}
        self.users = 0


Place = tuple[Segments, int]
"""Content of a whole prefix: the segment it ends in, and its length in tokens."""


class HostMemory:
    """``room`` 16-token blocks beside the GPU, and what is moved to and from it in the next step."""

    __slots__ = ("dropped", "entered", "fetched", "full", "into", "out", "outs", "room", "root", "swap_in",
                 "swap_out", "tier", "used")  # fmt: skip

    def __init__(self, room: int) -> None:
        self.room = room
        self.used = 0  # blocks of swapped calls
        self.out = self.into = 0  # blocks to move in the next step
        self.outs = self.full = self.swap_out = self.swap_in = 0
        self.root = Segments(None, (0, 0))
        self.tier: OrderedDict[Place, None] = OrderedDict()  # least recently entered first
        self.entered = self.dropped = self.fetched = 0

    def moved(self) -> tuple[int, int]:
        """(blocks out, blocks in) of the step that starts now."""
        moved = self.out, self.into
        self.out = self.into = 0
        return moved

    # -- swapped calls ---------------------------------------------------------------

    def keep(self, request: Request, computed: int, decodes: bool) -> None:
        """Move the KV of a preempted call out, if there is room for its ``computed`` tokens."""
        blocks = blocks_for(computed)
        if blocks > self.room - self.used:
            self.full += 1
            return
        self.used += blocks
        self.out += blocks
        self.outs += 1
        self.swap_out += blocks
        request.copy = computed
        request.decodes = decodes
        self._shrink()

    def drop(self, request: Request) -> None:
        """Give up the copy of a call, if it has one."""
        self.used -= blocks_for(request.copy)
        request.copy = 0

    def start(self, request: Request, hit: int) -> int:
        """Tokens not to compute, with ``hit`` blocks found on the GPU: the longer of tier and copy."""
        there = hit
        if self.tier:
            there += sum(1 for _ in self._find(request.ids, request.ends, hit, (request.tokens - 1) // BLOCK))
        return max(BLOCK * there, request.copy)

    def bring_back(self, request: Request, hit: int, start: int) -> None:
        """A call is admitted with ``start`` tokens; those behind its ``hit`` blocks move in."""
        if start == request.copy:
            blocks = max(0, blocks_for(start) - hit)
            self.swap_in += blocks
        else:
            blocks = start // BLOCK - hit
            if blocks:
                self._fetch(request, hit, hit + blocks)
        self.into += blocks
        self.drop(request)

    # -- the tier --------------------------------------------------------------------

    def enter(self, run: Run, blocks: int) -> None:
        """The last ``blocks`` blocks of a run are evicted from the GPU, tail first."""
        if self.used == self.room:
            return
        end = run.start + run.n
        places = list(self._places(run.ids, run.ends, end - blocks, end, make=True))
        for node, _ in places:  # nobody drops it meanwhile
            node.users += 1
        tier, room = self.tier, self.room - self.used
        for place in reversed(places):
            if place in tier:
                tier.move_to_end(place)
                self._leave(place[0])
            else:
                self.entered += 1
                tier[place] = None
                if len(tier) > room:
                    self._shrink()

    def _shrink(self) -> None:
        while self.used + len(self.tier) > self.room:
            place, _ = self.tier.popitem(last=False)
            self.dropped += 1
            self._leave(place[0])

    def _fetch(self, request: Request, begin: int, end: int) -> None:
        for place in list(self._find(request.ids, request.ends, begin, end)):
            del self.tier[place]
            self._leave(place[0])
        self.fetched += end - begin

    @staticmethod
    def _leave(node: Segments) -> None:
        node.users -= 1
        while not node.users and node.parent is not None:
            del node.parent.behind[node.key]
            node = node.parent
            node.users -= 1

    def _find(self, ids: list[int], ends: list[int], begin: int, end: int) -> Iterator[Place]:
        """What is here, without a gap, of blocks ``begin .. end-1`` of a sequence."""
        for place in self._places(ids, ends, begin, end, make=False):
            if place not in self.tier:
                return
            yield place

    def _places(self, ids: list[int], ends: list[int], begin: int, end: int, make: bool) -> Iterator[Place]:
        """Where blocks ``begin .. end-1`` are filed; without ``make`` as far as the tree goes."""
        node, i, length = self.root, -1, 0
        for tokens in range(BLOCK * (begin + 1), BLOCK * end + 1, BLOCK):
            while i < 0 or ends[i] < tokens:
                i += 1
                own = ends[i] - (ends[i - 1] if i else 0)
                if not own:
                    continue
                key = length, ids[i]
                child = node.behind.get(key)
                if child is None:
                    if not make:
                        return
                    node.behind[key] = child = Segments(node, key)
                    node.users += 1
                node, length = child, own
            yield node, tokens

    def totals(self) -> dict[str, float]:
        """Their names are in docs/engine-options.md, "Totals added"."""
        return {
            "swap_out_blocks": self.swap_out,
            "swap_in_blocks": self.swap_in,
            "swap_outs": self.outs,
            "swap_full": self.full,
            "host_hit_tokens": BLOCK * self.fetched,
            "host_in_blocks": self.entered,
            "host_dropped_blocks": self.dropped,
        }


class TierKV(RadixKV):
    """The GPU's blocks, where evicted content goes to host memory."""

    __slots__ = ("host",)

    def __init__(self, total: int, host: HostMemory) -> None:
        super().__init__(total)
        self.host = host

    def take(self, blocks: int) -> None:
        """Allocate ``blocks`` (at most ``free()``): plain ones first, then the oldest idle."""
        left = blocks - self.plain
        run = self.queue.next
        while left > 0:
            evicted = min(left, run.n)
            self.host.enter(run, evicted)
            left -= evicted
            run = run.next
        super().take(blocks)
