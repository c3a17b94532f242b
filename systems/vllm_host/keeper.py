"""KV of programs that are away, in vLLM's block pool: kept until a deadline, dropped first, protected.

A kept prefix is a *pin*: each of its blocks has one reference more, as if its
call had not been freed yet (delayed free). Whoever lacks free blocks gets those
of pins at once, so that no call waits and none is preempted because of a pin;
where those would not do, all pins stay.
Imports nothing of vLLM; a block is vLLM's (block_id, ref_cnt, block_hash, is_null).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, takewhile
from typing import Any

from systems.protocols import Kept
from systems.victims import Key, Victims, at_the_head, giving_up
from vocabulary import INF, Call

Block = Any
Manager = Any
"""vLLM's KVCacheManager."""
COUNTERS = ("pinned", "expired", "given_up", "hits", "released", "dropped_blocks")


@dataclass(eq=False, slots=True)
class Pin:
    """Blocks of a call that is over, in the order of its tokens; until ``about.until`` (s)."""

    about: Kept
    blocks: list[Block]


class Keeper:
    """The pins of one engine. ``now``: its clock (s). ``victims``: who is given up first, None: by deadline.

    ``needs(request)`` says how many blocks that nobody uses admitting it whole takes, pins aside;
    ``grows(request, tokens)`` how many more a call that has KV takes at least for that many tokens.
    ``waits(request)``: the call that waits here for admission as this request; None for one that runs.
    ``waiting()``: order and thread of all calls that may be admitted; asked where a deadline has passed.
    ``firm``: it gets nothing of what is kept while anything runs (``runs()``), unless something of its own
    thread is kept (systems.protocols.Keeping).
    ``remember``: what programs left is known until they end, for ``retain``, ``drop`` and ``protect``;
    else only until ``settle``.

    Wraps the manager's ``allocate_slots`` and, to know without counting which blocks only pins hold,
    its pool's ``touch`` and ``free_blocks``.
    """

    def __init__(
        self,
        manager: Manager,
        now: Callable[[], float],
        needs: Callable[[Any], int],
        grows: Callable[[Any, int], int],
        victims: Victims | None = None,
        remember: bool = True,
        firm: bool = False,
        waits: Callable[[Any], Call | None] = lambda _: None,
        runs: Callable[[], bool] = lambda: True,
        waiting: Callable[[], Iterable[tuple[Any, Key]]] = list,
    ) -> None:
        self.pins: dict[Key, Pin] = {}
        self.count: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.victims = victims
        self.remember = remember
        self.firm = firm
        self._pool = manager.block_pool
        self._manager = manager
        self._now = now
        self._needs = needs
        self._grows = grows
        self._waits = waits
        self._runs = runs
        self._waiting = waiting
        self._verdicts: dict[int, tuple[float, int]] = {}
        self._left: dict[Key, list[tuple[Block, object]]] = {}  # who left last last
        self._owners: dict[int, int] = {}  # block id -> pins that hold it
        self._only = 0  # of these, how many nobody else holds
        self._deadlines: list[tuple[float, int, Pin]] = []
        self._due: dict[Key, Pin] = {}  # past their deadline, earliest first
        self._ties = count()
        self._order: deque[Key] | None = None  # of giving up, while none is pinned and the clock stands
        self._allocate = manager.allocate_slots
        manager.allocate_slots = self.allocate_slots
        pool = manager.block_pool
        self._touch, self._free = pool.touch, pool.free_blocks
        pool.touch, pool.free_blocks = self.touch, self.free_blocks

    # What the host reports

    def leave(self, call: Call, request: Any) -> None:
        """A call has all its tokens; its blocks are about to be freed."""
        key = (call.program, call.thread)
        groups = self._manager.get_blocks(request.request_id).blocks
        self._release(key, "released")
        self._left.pop(key, None)
        self._left[key] = [
            (b, b.block_hash) for group in groups for b in group if b.block_hash is not None and not b.is_null
        ]

    def left(self, call: Call) -> bool:
        """Whether what the call left is still known: its program is not over."""
        return (call.program, call.thread) in self._left

    def settle(self, call: Call, until: float) -> None:
        """Its blocks are free, and nothing has happened since: keep them until then, or as clients said."""
        key = (call.program, call.thread)
        said, priority = self._verdicts.get(call.program, (0.0, 0))
        self.keep(key, max(until, said), priority, self._now())
        if not self.remember:
            del self._left[key]

    def keep(self, key: Key, until: float, priority: int, now: float) -> int:
        """Keep what is intact of what the thread left until then (s); blocks pinned."""
        blocks = self._intact(key) if key in self._left and until > now else []
        if blocks:
            tokens = len(blocks) * self._pool.hash_block_size
            self._pin(Kept(*key, tokens, until, priority), blocks)
        else:
            self._release(key, "released")
        return len(blocks)

    def admitted(self, call: Call, request: Any, cached: int) -> None:
        """A call entered the batch: what was kept for its thread has served."""
        key = (call.program, call.thread)
        self._left.pop(key, None)
        pin = self.pins.get(key)
        if pin is not None:
            first = self._manager.get_blocks(request.request_id).blocks[0][:1]
            self.count["hits"] += bool(cached) and first[0] is pin.blocks[0]
            self._release(key, "released")

    def expire(self) -> None:
        """Let go what is past its deadline, but for what a call at the head of the line is about to use.

        What is to be given up first is asked anew.
        """
        self._order = None
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= self._now():
            pin = heappop(deadlines)[2]
            key = (pin.about.program, pin.about.thread)
            if self.pins.get(key) is pin:
                self._due.pop(key, None)  # an earlier one of the thread has another place
                self._due[key] = pin
        if not self._due:
            return
        back = at_the_head(self._waiting(), self.pins)
        for key, pin in list(self._due.items()):
            if key not in back or self.pins.get(key) is not pin:
                del self._due[key]
                if self.pins.get(key) is pin:
                    self._release(key, "expired")

    # What clients say

    def retain(self, program: int, until: float, priority: int = 0) -> int:
        """Keep what the program left and will leave until ``until`` (s); blocks pinned now."""
        self._verdicts[program] = (until, priority)
        now = self._now()
        left = self._left_by(program) if until > now else []
        return sum(self.keep(key, until, priority, now) for key in left)

    def release(self, program: int) -> int:
        """Take back ``retain``; pins let go."""
        self._verdicts.pop(program, None)
        keys = [key for key in self.pins if key[0] == program]
        for key in keys:
            self._release(key, "released")
        return len(keys)

    def drop(self, program: int) -> int:
        """Let go, and let what the program left be evicted before all else; free blocks moved."""
        self.release(program)
        moved = self._move(program, self._evict_next)
        self.count["dropped_blocks"] += moved
        return moved

    def protect(self, program: int) -> int:
        """Let what the program left be evicted after all that is free now; free blocks moved."""
        return self._move(program, self._pool.free_block_queue.append_n)

    def end(self, program: int) -> None:
        """The program is over: nothing of it is kept."""
        self.release(program)
        for key in self._left_by(program):
            del self._left[key]

    def clear(self) -> None:
        """Let everything go."""
        for key in list(self.pins):
            self._release(key, "released")

    # Room

    def allocate_slots(self, request: Any, tokens: int, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, which lacks blocks only if those of pins would not do; then no pin is given up."""
        blocks = self._allocate(request, tokens, *args, **kwargs)
        if blocks is not None or not self._only or self._hopeless(request, tokens, *args, **kwargs):
            return blocks
        call = self._waits(request)
        if call is not None and self.barred(call):
            return None
        given: list[tuple[Key, Pin]] = []
        for key in self._victims(call):
            given.append((key, self.pins[key]))
            self._let_go(key)
            blocks = self._allocate(request, tokens, *args, **kwargs)
            if blocks is not None:
                self.count["given_up"] += len(given)
                return blocks
        for key, pin in given:  # nothing was allocated, so their content is still there
            self._hold(key, pin)
        self._order = None
        return None

    def _hopeless(
        self,
        request: Any,
        tokens: int,
        *args: Any,
        new_computed_blocks: Any = None,
        full_sequence_must_fit: bool = False,
        **kwargs: Any,  # noqa: ARG002
    ) -> bool:
        """Whether even all of the pins' blocks would not do, where that is told at once."""
        if len(self._manager.empty_kv_cache_blocks.blocks) > 1:
            return False
        if full_sequence_must_fit:
            need = self._needs(request)
        elif new_computed_blocks is None and not args:
            need = self._grows(request, tokens)
        else:
            return False
        return bool(need > self._pool.get_num_free_blocks() + self._only)

    def barred(self, call: Call) -> bool:
        """Whether a call that waits gets nothing of what is kept now."""
        return self.firm and (call.program, call.thread) not in self.pins and self._runs()

    def reclaimable(self) -> int:
        """Blocks that only pins hold."""
        return self._only

    def pinned_blocks(self) -> int:
        """Blocks that pins hold."""
        return len(self._owners)

    def held_by_calls(self, block: Block) -> bool:
        """Whether somebody else than pins holds it."""
        return bool(block.ref_cnt > self._owners.get(block.block_id, 0))

    def _victims(self, call: Call | None) -> Iterator[Key]:
        """All pins in the order of giving up: the policy's, then those it left out, then that of ``call``."""
        own = None if call is None else (call.program, call.thread)
        if self._order is None:
            kept = [pin.about for pin in self.pins.values()]
            self._order = deque(giving_up(kept, self.victims, self._now()))
        order = self._order
        while order:
            if order[0] == own and len(order) > 1:
                order[0], order[1] = order[1], order[0]
            if (key := order.popleft()) in self.pins:
                yield key

    # Blocks

    def touch(self, blocks: Sequence[Block]) -> None:
        """vLLM's: a call takes cached blocks over."""
        if self._only:
            self._only -= sum(self._owners.get(b.block_id) == b.ref_cnt for b in blocks)
        self._touch(blocks)

    def free_blocks(self, blocks: Iterable[Block]) -> None:
        """vLLM's: a call lets blocks go."""
        if not self._owners:
            self._free(blocks)
            return
        blocks = list(blocks)
        self._free(blocks)
        self._only += sum(self._owners.get(b.block_id) == b.ref_cnt for b in blocks)

    def _pin(self, about: Kept, blocks: list[Block]) -> None:
        key, pin = (about.program, about.thread), Pin(about, blocks)
        self._order = None
        old = self.pins.pop(key, None)
        self._hold(key, pin)  # before the old one goes, whose blocks may be the same
        if old is not None:
            self._drop(old)
            self.count["released"] += 1
        if about.until < INF:
            heappush(self._deadlines, (about.until, next(self._ties), pin))
        self.count["pinned"] += 1

    def _release(self, key: Key, why: str) -> None:
        if key in self.pins:
            self._let_go(key)
            self.count[why] += 1

    def _hold(self, key: Key, pin: Pin) -> None:
        self._touch(pin.blocks)
        self.pins[key] = pin
        for block in pin.blocks:
            owners = self._owners[block.block_id] = self._owners.get(block.block_id, 0) + 1
            self._only += owners == block.ref_cnt == 1

    def _let_go(self, key: Key) -> None:
        self._drop(self.pins.pop(key))

    def _drop(self, pin: Pin) -> None:
        for block in pin.blocks:
            owners = self._owners[block.block_id] = self._owners[block.block_id] - 1
            if not owners:
                del self._owners[block.block_id]
                self._only -= block.ref_cnt == 1
        self._free(list(reversed(pin.blocks)))

    def _left_by(self, program: int) -> list[Key]:
        return [key for key in self._left if key[0] == program]

    def _intact(self, key: Key) -> list[Block]:
        """The start of what the thread left that nobody has overwritten since, not even with the same."""
        return [block for block, _ in takewhile(lambda left: left[0].block_hash is left[1], self._left[key])]

    def _move(self, program: int, put: Callable[[list[Block]], None]) -> int:
        """``put`` what the program left and nobody holds elsewhere in the free queue, what goes first first.

        The thread that left first goes first, its last block before its first; what threads share goes with
        the last of them, or others would lose it before what they have behind it.
        """
        blocks = [b for key in self._left_by(program) for b in reversed(self._intact(key)) if not b.ref_cnt]
        blocks = list({block.block_id: block for block in reversed(blocks)}.values())[::-1]
        for block in blocks:
            self._pool.free_block_queue.remove(block)
        put(blocks)
        return len(blocks)

    def _evict_next(self, blocks: list[Block]) -> None:
        """Behind the free blocks without content, which cost nobody anything."""
        queue, without = self._pool.free_block_queue, 0
        block = queue.fake_free_list_head.next_free_block
        while block is not queue.fake_free_list_tail and block.block_hash is None:
            without += 1
            block = block.next_free_block
        front = queue.popleft_n(without)
        queue.prepend_n(blocks)
        queue.prepend_n(front)
