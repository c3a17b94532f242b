"""A closed loop: which programs start next, and when.

A place becomes free when a program ends. Programs of a wave (``workloads.base.Wave``) wait for the wave
before them, however many places are free: the barrier of RL, its training and its sync of weights.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from vocabulary import on_grid
from workloads.base import ProgramSpec, Wave

Starts = list[tuple[float, ProgramSpec]]
"""Programs and when they start (s)."""


class Backlog:
    """``specs`` in order, ``places`` at a time. Times in seconds on the grid."""

    def __init__(self, specs: Sequence[ProgramSpec], places: int) -> None:
        self._line = deque(specs)
        self._free = places
        self._running: Counter[int] = Counter()
        self._wave: Wave | None = None
        """The one that runs."""
        self._opens = 0.0
        self._trained: dict[int, float] = {0: 0.0}
        """When each version of the model exists."""

    def start(self, now: float) -> Starts:
        """Who takes the free places."""
        started: Starts = []
        while self._free and self._line:
            spec = self._line[0]
            if spec.wave is not None and not self._open(spec.wave, now):
                break
            self._line.popleft()
            self._free -= 1
            if spec.wave is not None:
                self._running[spec.wave.number] += 1
            started.append((now if spec.wave is None else max(now, self._opens), spec))
        return started

    def ended(self, spec: ProgramSpec, now: float) -> Starts:
        """A program is over: who starts because of it."""
        self._free += 1
        if spec.wave is not None:
            self._running[spec.wave.number] -= 1
        return self.start(now)

    def _open(self, wave: Wave, now: float) -> bool:
        """Whether the wave may start; it does at ``_opens``."""
        before = self._wave
        if before is None or wave.number != before.number:
            if +self._running:
                return False
            self._wave = wave
            if before is not None:
                self._opens = self._synced(before, wave, now)
        return True

    def _synced(self, before: Wave, wave: Wave, now: float) -> float:
        """The wave ``before`` ended now: when the model of the next one is trained and in the engines."""
        last = max(self._trained.values())
        self._trained[before.number + 1] = max(now, last) + on_grid(before.train_s)
        if wave.version == before.version:
            return now
        return max(now, self._trained[wave.version]) + on_grid(wave.sync_s)
