"""From hashes of prompts to segments: which tokens two recorded prompts have in common.

Engines count the tokens of whole prompts only. So each block has the tokens that the first prompt with it
leaves for it: what it has beyond its shared front, in proportion to the sizes of its blocks. Once a block has
its tokens it keeps them: equal fronts are equal segments, and the segments of each prompt add up to what the
engine counted.

A prompt that goes on from an earlier one holds that whole, and then its reply, as far as the text that it
quotes is the reply's: in messages by the hashes of what the assistant says, in texts and token ids by the
blocks that prompt and reply fill together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from vocabulary import Segment
from workloads.files import Tally
from workloads.keys import mix
from workloads.recorded import Piece, Seen
from workloads.script import leading

SHORTER = "prompt with fewer tokens than the text it shares: shared less"
AGAIN = "equal text of another length: the engine counted what no hash shows"
_ROLE = len("assistant\n")
"""Bytes of an assistant's piece in front of what it says."""
_MOST = 16
"""Replies to one prompt among which a quoted one is looked for, the last ones."""


class Mark(NamedTuple):
    """Where a block ends: ``tokens`` of the prompt up to there, the last of them in ``segment``."""

    before: Mark | None
    segment: Segment
    tokens: int

    def segments(self) -> list[Segment]:
        """All up to here."""
        found: list[Segment] = []
        at: Mark | None = self
        while at is not None:
            if at.segment[1]:
                found.append(at.segment)
            at = at.before
        return found[::-1]


class Placed(NamedTuple):
    """A call whose prompt has its segments; ``end``: of its prompt, ``output_id``: of its reply."""

    call: Seen
    end: Mark
    output_id: int


_START = Mark(None, (0, 0), 0)


class Prompts:
    """The prompts of one recording, in order of arrival. ``key``: of its segment ids."""

    def __init__(self, key: int, repaired: Tally) -> None:
        self.key = key
        self._repaired = repaired
        self._marks: dict[int, Mark] = {}
        self._after: defaultdict[int, list[Placed]] = defaultdict(list)
        """Calls by the hash of their prompts' ends, or (flat) of the last block that their replies fill."""
        self._placed: dict[int, Placed] = {}
        self._tokens: dict[tuple[tuple[int, ...], int], int] = {}
        """Of what was said anywhere, as hashes and size."""
        self._followed: set[int] = set()
        self._own = 0

    def content(self, call: Seen) -> tuple[list[Segment], int]:
        """(segments of a placed call's prompt, whose lengths add up to its tokens; that of its reply)."""
        placed = self._placed[id(call)]
        return placed.end.segments(), placed.output_id

    def place(self, call: Seen) -> None:
        """The next call. Sets ``follows``."""
        placed = self._placed[id(call)] = self._place(call)
        if call.prompt is None:
            return
        if call.prompt.role == "f":
            self._go_on(placed, sum(size for _, size in _blocks(call.prompt.path())))
        else:
            self._after[call.prompt.hashes[-1]].append(placed)
            self._tokens.setdefault((call.reply, call.reply_size), call.output_tokens)

    def _place(self, call: Seen) -> Placed:
        if call.prompt is None:
            tokens = call.prompt_tokens
            return Placed(call, Mark(_START, (self._fresh(), tokens), tokens), self._fresh())
        path = call.prompt.path()
        call.follows = self._follows(call, path)
        if call.follows is not None:
            self._followed.add(id(call.follows))
        blocks = [*_blocks(path)]
        name = mix(mix(self.key, blocks[-1][0]), call.reply[-1]) if call.reply else self._fresh()
        return Placed(call, self._walk(call, path, blocks), name)

    def _fresh(self) -> int:
        self._own += 1
        return mix(self.key ^ 1, self._own)

    # -- who quotes whom ---------------------------------------------------------------

    def _follows(self, call: Seen, path: list[Piece]) -> Seen | None:
        """The last call whose whole reply the prompt quotes, of its own program if that has a name."""
        if path[-1].role == "f":
            ends = [hash_ for hash_, _ in _blocks(path)]
            found = (self._after.get(hash_, []) for hash_ in reversed(ends))
        else:
            found = (
                [one for one in self._after.get(before.hashes[-1], []) if _quotes(piece, one.call)]
                for before, piece in zip(path[-2::-1], path[:0:-1], strict=True)
                if piece.role == "a"
            )
        for candidates in found:
            mine = [one.call for one in candidates if _may_follow(call, one.call)]
            if mine:
                return max(mine, key=lambda one: (id(one) not in self._followed, one.end))
        return None

    # -- tokens ------------------------------------------------------------------------

    def _walk(self, call: Seen, path: list[Piece], blocks: list[tuple[int, int]]) -> Mark:
        """The end of its prompt; blocks that are new get what tokens are left."""
        known = self._known(blocks, 0)
        quoted = self._quoted(path, known)
        if quoted:
            known = self._known(blocks, known)
        at = self._marks[blocks[known - 1][0]] if known else _START
        if known == len(blocks):
            return self._ends_inside(call, at, blocks[-1][0])
        if at.tokens >= call.prompt_tokens:
            self._repaired.add(SHORTER, call.where)
            return self._cut(call, at)
        self._spread(call.prompt_tokens, at, blocks[known:], [*self._generated(path)][known:])
        return self._marks[blocks[-1][0]]

    def _known(self, blocks: list[tuple[int, int]], at: int) -> int:
        while at < len(blocks) and blocks[at][0] in self._marks:
            at += 1
        return at

    def _spread(self, tokens: int, at: Mark, blocks: list[tuple[int, int]], generated: list[float]) -> None:
        """What the prompt has beyond ``at``, over new blocks: to those of replies what was generated for
        them, to the others the rest by their sizes (all of it, if that leaves nothing for them)."""
        start, known = at.tokens, sum(generated)
        free = sum(size for (_, size), share in zip(blocks, generated, strict=True) if not share)
        if known and (rest := tokens - start - known) > 0 and free:
            weights = [
                share or size * rest / free for (_, size), share in zip(blocks, generated, strict=True)
            ]
        else:
            weights = [float(size) for _, size in blocks]
        total, so_far = sum(weights), 0.0
        for (hash_, _), weight in zip(blocks, weights, strict=True):
            so_far += weight
            to = start + round((tokens - start) * so_far / total)
            at = self._marks[hash_] = Mark(at, (mix(self.key, hash_), to - at.tokens), to)

    def _generated(self, path: list[Piece]) -> Iterable[float]:
        """For each block the tokens that were generated for it, if it is of some reply, else 0."""
        for piece in path:
            tokens = self._tokens.get((piece.said, piece.said_size), 0) if piece.said else 0
            rest = piece.size
            for _ in piece.hashes:
                yield tokens * min(piece.block, rest) / piece.size
                rest -= piece.block

    def _ends_inside(self, call: Seen, at: Mark, end: int) -> Mark:
        """All of its blocks are those of earlier prompts."""
        if at.tokens == call.prompt_tokens:
            return at
        if end in self._after:
            self._repaired.add(AGAIN, call.where)
        if at.tokens > call.prompt_tokens:
            return self._cut(call, at)
        return Mark(at, (self._fresh(), call.prompt_tokens - at.tokens), call.prompt_tokens)

    def _cut(self, call: Seen, at: Mark) -> Mark:
        """As far as its tokens reach."""
        end = _START
        for segment in leading(at.segments(), call.prompt_tokens):
            end = Mark(end, segment, end.tokens + segment[1])
        return end

    # -- replies -----------------------------------------------------------------------

    def _quoted(self, path: list[Piece], known: int) -> bool:
        """Mark the blocks of an assistant's piece, the first that is new, which are those of a reply."""
        for before, piece in pairwise(path):
            known -= len(before.hashes)
            if known == 0 and piece.role == "a":
                return self._mark_reply(piece, self._after.get(before.hashes[-1], [])[-_MOST:])
        return False

    def _mark_reply(self, piece: Piece, candidates: list[Placed]) -> bool:
        if not candidates:
            return False
        best = max(
            candidates, key=lambda one: (_quotes(piece, one.call), _common(piece.said, one.call.reply))
        )
        whole = _quotes(piece, best.call)
        size = piece.size if whole else _ROLE + best.call.reply_size
        share = size if whole else _ROLE + _common(piece.said, best.call.reply) * piece.block
        marked = False
        for number, hash_ in enumerate(piece.hashes, 1):
            end = min(number * piece.block, piece.size)
            if end > share or (not whole and share == _ROLE):
                break
            kept = best.call.output_tokens * end // size
            self._marks[hash_] = Mark(best.end, (best.output_id, kept), best.end.tokens + kept)
            marked = True
        return marked

    def _go_on(self, placed: Placed, size: int) -> None:
        """The blocks that a flat prompt and its reply fill together."""
        call = placed.call
        assert call.prompt is not None
        whole = size - size % call.prompt.block
        for number, hash_ in enumerate(call.reply, 1):
            covered = whole + number * call.prompt.block - size
            kept = min(call.output_tokens, -(-call.output_tokens * covered // max(1, call.reply_size)))
            mark = Mark(placed.end, (placed.output_id, kept), placed.end.tokens + kept)
            self._marks.setdefault(hash_, mark)
        if call.reply:
            self._after[call.reply[-1]].append(placed)


def _blocks(path: list[Piece]) -> Iterable[tuple[int, int]]:
    """(hash, size) of every block."""
    for piece in path:
        rest = piece.size
        for hash_ in piece.hashes:
            yield hash_, min(piece.block, rest)
            rest -= piece.block


def _quotes(piece: Piece, call: Seen) -> bool:
    """Whether an assistant's message is the call's reply."""
    return bool(piece.said) and (piece.said, piece.said_size) == (call.reply, call.reply_size)


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many hashes they have in common at the front."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _may_follow(call: Seen, before: Seen) -> bool:
    if before.end > call.start or before.named != call.named:
        return False
    return not call.named or before.program == call.program
