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
from itertools import count
from typing import Any

from systems.protocols import Kept, Retention
from vocabulary import INF, Call

Block = Any
Manager = Any
"""vLLM's KVCacheManager."""
Key = tuple[int, str]
"""(program, thread): what one keeps and the next call of takes over."""
COUNTERS = ("pinned", "expired", "given_up", "hits", "released")


@dataclass(eq=False, slots=True)
class Pin:
    """Blocks of a call that is over, in the order of its tokens; until ``about.until`` (s)."""

    about: Kept
    blocks: list[Block]


class Keeper:
    """The pins of one engine. ``now``: its clock (s). ``policy``: None if only clients decide.

    ``needs(request)`` says how many blocks that nobody uses admitting it whole takes, pins aside;
    ``grows(request, tokens)`` how many more a call that has KV takes at least for that many tokens.
    ``remember``: what programs left is known until they end, for ``retain``, ``drop`` and ``protect``.

    Wraps the manager's ``allocate_slots`` and, to know without counting which blocks only pins hold,
    its pool's ``touch`` and ``free_blocks``.
    """

    def __init__(
        self,
        manager: Manager,
        now: Callable[[], float],
        needs: Callable[[Any], int],
        grows: Callable[[Any, int], int],
        policy: Retention | None = None,
        remember: bool = True,
    ) -> None:
        self.pins: dict[Key, Pin] = {}
        self.count: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._pool = manager.block_pool
        self._manager = manager
        self._now = now
        self._needs = needs
        self._grows = grows
        self._policy = policy
        self._remember = remember
        self._verdicts: dict[int, tuple[float, int]] = {}
        self._idle: dict[Key, list[tuple[Block, object]]] = {}
        self._owners: dict[int, int] = {}  # block id -> pins that hold it
        self._only = 0  # of these, how many nobody else holds
        self._deadlines: list[tuple[float, int, Pin]] = []
        self._ties = count()
        self._order: deque[Key] | None = None  # of giving up, while none is pinned and the clock stands
        self._allocate = manager.allocate_slots
        manager.allocate_slots = self.allocate_slots
        pool = manager.block_pool
        self._touch, self._free = pool.touch, pool.free_blocks
        pool.touch, pool.free_blocks = self.touch, self.free_blocks

    # What the host reports

    def over(self, call: Call, request: Any, tool: str, retain_s: float) -> None:
        """A call has all its tokens; its blocks are about to be freed."""
        key, now = (call.program, call.thread), self._now()
        groups = self._manager.get_blocks(request.request_id).blocks
        blocks = [b for group in groups for b in group if b.block_hash is not None and not b.is_null]
        self._release(key, "released")
        if self._remember:
            self._idle[key] = [(block, block.block_hash) for block in blocks]
        tokens = request.num_tokens
        until, priority = self._verdicts.get(call.program, (0.0, 0))
        until = max(until, now + retain_s)
        if self._policy is not None:
            until = max(until, self._policy.idle(call.program, tokens, tool, now))
        if until > now and blocks:
            self._pin(Kept(call.program, call.thread, tokens, until, priority), blocks)

    def admitted(self, call: Call, request: Any, cached: int) -> None:
        """A call entered the batch: what was kept for its thread has served."""
        key = (call.program, call.thread)
        self._idle.pop(key, None)
        pin = self.pins.get(key)
        if pin is not None:
            first = self._manager.get_blocks(request.request_id).blocks[0][:1]
            self.count["hits"] += bool(cached) and first[0] is pin.blocks[0]
            self._release(key, "released")

    def expire(self) -> None:
        """Let go what is past its deadline; what is to be given up first is asked anew."""
        self._order = None
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= self._now():
            pin = heappop(deadlines)[2]
            key = (pin.about.program, pin.about.thread)
            if self.pins.get(key) is pin:
                self._release(key, "expired")

    # What clients say

    def retain(self, program: int, until: float, priority: int = 0) -> int:
        """Keep what the program left and will leave until ``until`` (s); blocks pinned now."""
        self._verdicts[program] = (until, priority)
        pinned = 0
        for key in [k for k in self._idle if k[0] == program]:
            blocks = self._intact(key)
            if blocks and until > self._now():
                tokens = len(blocks) * self._pool.hash_block_size
                self._pin(Kept(program, key[1], tokens, until, priority), blocks)
                pinned += len(blocks)
        return pinned

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
        return self._move(program, self._pool.free_block_queue.prepend_n)

    def protect(self, program: int) -> int:
        """Let what the program left be evicted after all that is free now; free blocks moved."""
        return self._move(program, self._pool.free_block_queue.append_n)

    def end(self, program: int) -> None:
        """The program is over: nothing of it is kept."""
        self.release(program)
        for key in [k for k in self._idle if k[0] == program]:
            del self._idle[key]

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
        given: list[tuple[Key, Pin]] = []
        for key in self._victims():
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

    def reclaimable(self) -> int:
        """Blocks that only pins hold."""
        return self._only

    def pinned_blocks(self) -> int:
        """Blocks that pins hold."""
        return len(self._owners)

    def held_by_calls(self, block: Block) -> bool:
        """Whether somebody else than pins holds it."""
        return bool(block.ref_cnt > self._owners.get(block.block_id, 0))

    def _victims(self) -> Iterator[Key]:
        """All pins in the order of giving up: the policy's, then those it left out."""
        if self._order is None:
            self._order = deque(self._ordered())
        while self._order:
            if (key := self._order.popleft()) in self.pins:
                yield key

    def _ordered(self) -> dict[Key, None]:
        kept = [pin.about for pin in self.pins.values()]
        first = self._policy.victims(kept, self._now()) if self._policy is not None else ()
        keys = dict.fromkeys((one.program, one.thread) for one in first)
        if not keys.keys() >= self.pins.keys():
            for one in by_deadline(kept):
                keys.setdefault((one.program, one.thread))
        return keys

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

    def _intact(self, key: Key) -> list[Block]:
        """The start of what the thread left that nobody has overwritten since."""
        intact = []
        for block, content in self._idle[key]:
            if block.block_hash != content:
                break
            intact.append(block)
        return intact

    def _move(self, program: int, put: Callable[[list[Block]], None]) -> int:
        blocks = [b for key in self._idle if key[0] == program for b in self._intact(key) if not b.ref_cnt]
        blocks = list({block.block_id: block for block in reversed(blocks)}.values())
        for block in blocks:
            self._pool.free_block_queue.remove(block)
        put(blocks)
        return len(blocks)


def by_deadline(kept: Iterable[Kept]) -> Sequence[Kept]:
    """The default order of giving up: the smallest priority first, then the earliest deadline."""
    return sorted(kept, key=lambda one: (one.priority, one.until))


class Fixed:
    """Keep what every call leaves for ``seconds``. Raises ValueError for a negative number."""

    name = "fixed"

    def __init__(self, seconds: float = 10.0) -> None:
        if not seconds >= 0.0:
            raise ValueError(f"seconds must not be negative, got {seconds!r}")
        self.seconds = seconds

    def idle(self, program: int, tokens: int, tool: str, now: float) -> float:  # noqa: ARG002
        """The same for all."""
        return now + self.seconds

    def victims(self, candidates: Sequence[Kept], now: float) -> Sequence[Kept]:  # noqa: ARG002
        """Who would be let go first anyway."""
        return by_deadline(candidates)
