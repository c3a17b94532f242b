"""Retention of the virtual engine (systems.protocols.Keeping), by the keeper of our scheduler class."""

from __future__ import annotations

from typing import Any

from systems.victims import Victims


class Keeps:
    """``scheduler``: one with our class; without ``EngineConfig.retains`` it has no keeper for this."""

    def __init__(self, scheduler: Any) -> None:
        self._retained: Any = scheduler.retained
        self._keeper: Any = scheduler.keeper
        if self._keeper is not None:
            self._keeper.remember = True

    def ask_victims(self, victims: Victims | None) -> None:
        """Whom to ask what is given up first."""
        self._keeper.victims = victims

    def be_firm(self, firm: bool) -> None:
        """Whether newcomers wait for what is kept."""
        self._keeper.firm = firm

    def retain(self, program: int, thread: str, until: float, priority: int, now: float) -> int:
        """Keep what the thread's last call left until ``until`` (s) or its next call; blocks kept."""
        return int(self._keeper.keep((program, thread), until, priority, now))

    def release(self, program: int, _now: float) -> int:
        """Back to the cache's order; threads released."""
        return int(self._keeper.release(program))

    def drop(self, program: int, _now: float) -> int:
        """Release, and evict what it left before all else; blocks moved to the front."""
        return int(self._keeper.drop(program))

    def waiting_tokens(self) -> int:
        """Prompt tokens of the calls that wait here for admission."""
        return int(self._retained.waiting_tokens())

    def keeping_counts(self) -> dict[str, int]:
        """What became of what was kept, so far."""
        return dict(self._keeper.count)

    def kept_blocks(self) -> int:
        """Blocks that nobody uses and that are kept."""
        return 0 if self._keeper is None else int(self._keeper.reclaimable())

    def forget(self, program: int) -> None:
        """The program is over."""
        if self._keeper is not None:
            self._keeper.end(program)
