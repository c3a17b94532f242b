"""The simulated engine's blocks where some that nobody uses are kept (docs/engine-options.md, "Retention").

A *pin* is one reference more on runs, counted apart from those of calls. A run that only pins hold is free
in every count, but not in the free queue: nobody gets it before its pins are given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from systems.engines.host_memory import HostMemory, TierKV
from systems.engines.radix import NOWHERE, Held, Path, Run, unlink


class Left(NamedTuple):
    """What a call left when it ended: the first ``blocks`` blocks held through ``chain``."""

    chain: list[Held]
    blocks: int


class KeptKV(TierKV):
    """``TierKV``, without a tier over a host without room; ``idle`` counts what only pins hold, too.

    ``kept``: those blocks. ``lacking(blocks)`` is called where an allocation of so many needs them: it gives
    up pins until the rest will do. ``pins``: pins per run. ``moved``: something was ever put to the front.
    """

    __slots__ = ("kept", "lacking", "moved", "pins")

    def __init__(self, total: int, caching: bool, host: HostMemory, lacking: Callable[[int], None]) -> None:
        super().__init__(total, host)
        self.caching = caching
        self.kept = 0
        self.lacking = lacking
        self.moved = False
        self.pins: dict[Run, int] = {}

    def at_once(self) -> int:
        """Free blocks that no pin holds."""
        return self.plain + self.idle - self.kept

    # What pins change

    def hold(self, path: Path) -> list[Held]:
        """Take the hit blocks into use."""
        chain: list[Held] = []
        for run, m in path:
            held = self.split(run, m) if m < run.n else run
            if held.refs == 0:
                self.idle -= held.n
                if held in self.pins:
                    self.kept -= held.n
                else:
                    unlink(held)
            held.refs += 1
            chain.append((held, held.start))
        return chain

    def release(self, chain: list[Held]) -> None:
        """Give the blocks held through ``chain`` back, tail first."""
        for run, start in reversed(chain):
            for piece in _pieces(run, start):
                piece.refs -= 1
                if piece.refs == 0:
                    self.idle += piece.n
                    if piece in self.pins:
                        self.kept += piece.n
                    else:
                        self._link(piece)

    def cache(self, chain: list[Held], ids: list[int], ends: list[int], have: int, end: int) -> None:
        """Enter blocks ``have .. end-1`` of the sequence: below a pinned run, which does not grow."""
        last = chain[-1][0] if chain else NOWHERE
        pinned = last in self.pins
        last.refs += pinned
        super().cache(chain, ids, ends, have, end)
        last.refs -= pinned

    def split(self, run: Run, m: int) -> Run:
        """Cut ``run`` after ``m`` blocks; returns the new upper part."""
        pins = self.pins.get(run)
        if pins is None:
            return super().split(run, m)
        run.refs += 1  # else the upper part would be linked behind it
        upper = super().split(run, m)
        run.refs -= 1
        upper.refs -= 1
        self.pins[upper] = pins
        return upper

    def take(self, blocks: int) -> None:
        """Allocate ``blocks`` (at most ``free()``): plain ones, then the oldest idle, then those of pins."""
        cached = blocks - self.plain
        if cached > 0:
            if cached > self.idle - self.kept:
                self.lacking(blocks)
            self._cut(cached)
        super().take(blocks)

    def _cut(self, blocks: int) -> None:
        """Split runs so that the next ``blocks`` evictions take whole runs, a hole above the living.

        A run that was cut short could grow again, and would then pass for what a call left there. A parent
        goes before what hangs on it only if somebody moved it to the front.
        """
        run = self.queue.next
        while blocks > 0:
            gone = min(blocks, run.n)
            blocks -= gone
            following = run.next
            if gone < run.n:
                self.split(run, run.n - gone)
            while self.moved and run.children and run.n > 1:
                run = self.split(run, run.n - 1)
            run = following

    # Pins

    def intact(self, left: Left) -> list[Run]:
        """The runs, root first, that hold exactly what is still there of it, without a gap."""
        found: list[Run] = []
        for piece, stop in _parts(left):
            if not self._is_there(piece):
                break
            found.append(self.split(piece, stop - piece.start) if piece.start + piece.n > stop else piece)
        return found

    def pin(self, runs: Sequence[Run]) -> list[Held]:
        """One pin more on each; what ``unpin`` takes."""
        for run in runs:
            pins = self.pins.get(run, 0)
            self.pins[run] = pins + 1
            if not pins and not run.refs:
                unlink(run)
                self.kept += run.n
        return [(run, run.start) for run in runs]

    def unpin(self, chain: list[Held]) -> None:
        """One pin less, tail first; what nobody holds any more is evicted last."""
        for run, start in reversed(chain):
            for piece in _pieces(run, start):
                self.pins[piece] -= 1
                if not self.pins[piece]:
                    del self.pins[piece]
                    if not piece.refs:
                        self.kept -= piece.n
                        self._link(piece)

    def to_front(self, runs: Sequence[Run]) -> int:
        """Of ``runs``, those that nobody holds are evicted next, in this order; their blocks."""
        moved = [run for run in runs if not run.refs and run not in self.pins]
        moved = list(dict.fromkeys(reversed(moved)))  # of a run that is there twice, the last place
        head = self.queue
        for run in moved:
            unlink(run)
            first = head.next
            run.prev, run.next = head, first
            head.next = first.prev = run
        self.moved = self.moved or bool(moved)
        return sum(run.n for run in moved)

    def _is_there(self, run: Run) -> bool:
        """Whether it has not been evicted."""
        return bool(run.refs or run in self.pins or run.prev is not NOWHERE)

    def _link(self, run: Run) -> None:
        tail = self.queue
        before = tail.prev
        run.prev, run.next = before, tail
        before.next = tail.prev = run


def _pieces(run: Run, start: int) -> list[Run]:
    """What ``run`` was when it began at block ``start``, last part first."""
    pieces = [run]
    while run.start > start:
        assert run.above is not None
        run = run.above
        pieces.append(run)
    return pieces


def _parts(left: Left) -> list[tuple[Run, int]]:
    """The runs it was in, root first, each with the block at which its part of it ends.

    A run may have grown since, a part of it that was cut off may be gone: then it ends where that began.
    """
    parts: list[tuple[Run, int]] = []
    stop = left.blocks
    for run, start in reversed(left.chain):
        for piece in _pieces(run, start):
            if piece.start < stop:
                parts.append((piece, stop))
                stop = piece.start
    return parts[::-1]


def top(chain: list[Held]) -> Run:
    """The run that has the first block of ``chain`` now."""
    return _pieces(*chain[0])[-1]
