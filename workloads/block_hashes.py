"""From hashes of prompt blocks to segments: who shares which prefix, and the replies.

Traces give a prompt as ids of its full blocks (and its length). Two prompts share
as many whole blocks as their lists of ids have in common at the front. A call's
prompt is written as: what it keeps of an earlier call, then new text.

The rule for replies: if a prompt holds all full blocks of an earlier prompt and is
longer, it continues that call. It then keeps the whole earlier prompt with its
partial last block, directly followed by the reply, of which as many tokens are
kept as the prompt grew by (thinking is often dropped), and then new text. So the
reuse of generated tokens is exact. Where a second call continues the same prompt
with another next block, only whole blocks are kept: the ids say that they differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from vocabulary import Segment
from workloads.keys import mix
from workloads.script import CallOp


class SharedPrompts:
    """The prompts of one session, in order. ``key`` makes its segment ids its own."""

    def __init__(self, key: int, block: int) -> None:
        self.key = key
        self.block = block
        self._ids = 0
        self._unknown = 0
        self._calls: list[tuple[list[int], CallOp]] = []

    def new_id(self) -> int:
        """A segment id of this session."""
        self._ids += 1
        return mix(self.key, self._ids)

    def unknown_blocks(self, tokens: int, after: CallOp | None) -> list[int]:
        """Ids for a prompt without any: it is taken to continue ``after`` if it is long enough."""
        known = next((ids for ids, op in reversed(self._calls) if op is after), [])
        blocks = tokens // self.block
        fresh = range(self._unknown - 1, self._unknown - 1 - max(0, blocks - len(known)), -1)
        self._unknown -= len(fresh)
        return [*known[:blocks], *fresh]

    def place(self, op: CallOp, ids: list[int]) -> None:
        """Fill in ``base``, ``keep`` and ``new`` of a call of ``op.prompt_tokens`` tokens."""
        tokens = op.prompt_tokens
        shared, base, base_ids = self._closest(ids)
        if base is not None:
            op.base, op.keep = base, self._kept(op, ids, shared, base, base_ids)
        if tokens > op.keep:
            op.new = self._text(op)
        self._calls.append((ids, op))

    def _text(self, op: CallOp) -> tuple[Segment, ...]:
        """What follows the kept part of a prompt."""
        return ((self.new_id(), op.prompt_tokens - op.keep),)

    def _closest(self, ids: list[int]) -> tuple[int, CallOp | None, list[int]]:
        """(shared blocks, call, its ids): the most shared, then wholly continued, then latest."""
        best, found, found_ids = 0, None, []
        for old, op in reversed(self._calls):
            if len(old) > best < len(ids) and old[: best + 1] == ids[: best + 1]:
                best, found, found_ids = _common(old, ids, best + 1), op, old
            elif best and found and len(found_ids) > best == len(old) and old == ids[:best]:
                found, found_ids = op, old
        return best, found, found_ids

    def _kept(self, op: CallOp, ids: list[int], shared: int, base: CallOp, base_ids: list[int]) -> int:
        """How many tokens of the base's prompt and reply the prompt starts with."""
        grown = op.prompt_tokens - base.prompt_tokens
        if shared == len(base_ids) and not (len(ids) > shared and self._parted(ids, shared)):
            if grown >= 0:
                return base.prompt_tokens + min(base.output_tokens, grown)
            if len(ids) == shared:
                return op.prompt_tokens
        return shared * self.block

    def _parted(self, ids: list[int], shared: int) -> bool:
        """Another call shares these blocks and goes on differently."""
        front = ids[:shared]
        return any(len(old) > shared and old[:shared] == front for old, _ in self._calls)


class NamedBlocks(SharedPrompts):
    """The prompts of one program of a trace whose ids mean the same text in all its programs.

    So a block's segment id comes from its hash id (``names`` tells files apart), and equal
    prompts of two programs are equal segments. A reply that a later prompt of the program
    holds is named by the blocks that it fills, if all of these have ids; else by its call.

    Ids may cover whole blocks only, or have one more for the rest of the prompt.
    """

    def __init__(self, key: int, block: int, names: int) -> None:
        super().__init__(key, block)
        self.names = names
        self._all: dict[int, list[int]] = {}
        self._named: set[int] = set()

    def place(self, op: CallOp, ids: list[int]) -> None:
        """Fill in ``base``, ``keep`` and ``new``."""
        self._all[id(op)] = ids
        super().place(op, ids[: op.prompt_tokens // self.block])
        base = op.base
        if base is not None and op.keep > base.prompt_tokens and id(base) not in self._named:
            self._name_reply(base, op, ids)

    def _name_reply(self, base: CallOp, op: CallOp, ids: list[int]) -> None:
        self._named.add(id(base))
        first, end = base.prompt_tokens // self.block, -(-op.keep // self.block)
        if len(ids) < end:
            return
        name = mix(self.names, base.prompt_tokens % self.block)
        for block in ids[first:end]:
            name = mix(name, block)
        base.output_id = name

    def _text(self, op: CallOp) -> tuple[Segment, ...]:
        ids, at, pieces = self._all[id(op)], op.keep, list[Segment]()
        while at < op.prompt_tokens:
            place, offset = divmod(at, self.block)
            end = min((place + 1) * self.block, op.prompt_tokens)
            if place >= len(ids):
                end = op.prompt_tokens
                pieces.append((self.new_id(), end - at))
            elif offset:
                pieces.append((mix(mix(self.names, ids[place]), offset), end - at))
            else:
                pieces.append((mix(self.names, ids[place]), end - at))
            at = end
        return tuple(pieces)

    def _kept(self, op: CallOp, ids: list[int], shared: int, base: CallOp, base_ids: list[int]) -> int:
        rest, other = (self._all[id(o)][len(i) :] for o, i in ((op, ids), (base, base_ids)))
        same_end = op.prompt_tokens == base.prompt_tokens and rest == other
        if len(ids) == shared == len(base_ids) and (rest or other) and not same_end and not (
            op.prompt_tokens > base.prompt_tokens
        ):  # fmt: skip
            return shared * self.block
        return super()._kept(op, ids, shared, base, base_ids)


def _common(a: Sequence[int], b: Sequence[int], at_least: int) -> int:
    """Length of the common front of two lists that agree in ``at_least`` places."""
    low, high = at_least, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
