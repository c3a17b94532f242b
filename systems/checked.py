"""Policies from outside the project, watched: what they raise or return wrongly is theirs, and is said so.

Only ``pkg.mod:Class`` policies are wrapped; the catalog's own keep their speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, TypeVar

from systems.protocols import CacheView, Router, Scheduler
from vocabulary import Call, EngineView, Slot, Snapshot, Usage

T = TypeVar("T")
UNITS = ("step", "s", "token")


MOST_LEVELS = 2**31
"""The event log's levels are 32-bit."""


class PolicyError(Exception):
    """A policy raised, or returned what its protocol does not allow; names policy and method."""


class Checked:
    """A scheduler that passes everything on to ``scheduler`` and looks at what comes back.

    ``name`` is how the user named it. Raises PolicyError for whatever it raises, and for a slot
    that is not (level: whole number >= 0, key: finite number, quantum: number > 0).
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._who = f"scheduler {name}"
        self.name, self.unit = scheduler.name, scheduler.unit
        self.clairvoyant, self.tracks_wait = scheduler.clairvoyant, scheduler.tracks_wait
        self.reads_cache = bool(getattr(scheduler, "reads_cache", False))
        self._waiting: set[int] = set()
        if self.unit not in UNITS:
            raise PolicyError(f"{self._who}: unit must be one of {', '.join(UNITS)}, got {self.unit!r}")

    def attach(self, cache: CacheView) -> None:
        """Pass it on, if ``scheduler`` reads the cache."""
        if self.reads_cache:
            policy: Any = self._scheduler
            _asked(self._who, "attach", lambda: policy.attach(cache))

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """The slot of ``scheduler``, checked."""
        got = _asked(self._who, "arrive", lambda: self._scheduler.arrive(call, snap, now))
        self._waiting.add(call.seq)
        return _slot(got, self._who, "arrive")

    def start(self, call: Call, now: float) -> None:
        """Pass it on."""
        self._waiting.discard(call.seq)
        _asked(self._who, "start", lambda: self._scheduler.start(call, now))

    def stop(self, call: Call, usage: Usage, now: float) -> None:
        """Pass it on."""
        self._waiting.add(call.seq)
        _asked(self._who, "stop", lambda: self._scheduler.stop(call, usage, now))

    def expire(self, call: Call, served: float, now: float) -> Slot:
        """The slot of ``scheduler``, checked."""
        got = _asked(self._who, "expire", lambda: self._scheduler.expire(call, served, now))
        return _slot(got, self._who, "expire")

    def next_due(self) -> float:
        """A time in seconds, INF for never."""
        got = _asked(self._who, "next_due", self._scheduler.next_due)
        if not isinstance(got, int | float) or math.isnan(got):
            raise _returned(self._who, "next_due", got, "a time in seconds (INF for never)")
        return got

    def due(self, now: float) -> list[tuple[Call, Slot]]:
        """The moves of ``scheduler``, checked."""
        moves = _asked(self._who, "due", lambda: [(call, slot) for call, slot in self._scheduler.due(now)])
        seen: set[int] = set()
        for call, _ in moves:
            if not isinstance(call, Call) or call.seq not in self._waiting or call.seq in seen:
                raise _returned(self._who, "due", call, "waiting calls, each once, with their new slots")
            seen.add(call.seq)
        return [(call, _slot(slot, self._who, "due")) for call, slot in moves]

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Pass it on."""
        self._waiting.discard(call.seq)
        _asked(self._who, "finish", lambda: self._scheduler.finish(call, usage, now))

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """Pass it on."""
        self._waiting.discard(call.seq)
        _asked(self._who, "abort", lambda: self._scheduler.abort(call, usage, now))

    def end(self, program: int, now: float) -> None:
        """Pass it on."""
        _asked(self._who, "end", lambda: self._scheduler.end(program, now))


class CheckedRouter:
    """A router that passes calls on to ``router`` and looks at the engine it returns."""

    def __init__(self, router: Router, name: str) -> None:
        self._router = router
        self._who = f"router {name}"
        self.name = router.name
        self.reads_prompt = bool(getattr(router, "reads_prompt", False))

    def route(self, call: Call, engines: Sequence[EngineView], now: float) -> int:
        """The id of a live engine. Raises PolicyError."""
        got: object = _asked(self._who, "route", lambda: self._router.route(call, engines, now))
        alive = [engine.id for engine in engines if engine.alive]
        if type(got) is bool or got not in alive:
            raise _returned(self._who, "route", got, f"the id of a live engine, one of {alive}")
        return index(got)

    def end(self, program: int) -> None:
        """Pass it on, if ``router`` wants to know."""
        end = getattr(self._router, "end", None)
        if end is not None:
            _asked(self._who, "end", lambda: end(program))


class Watched:
    """A policy of any kind: whatever a method of it raises is its fault. Raises PolicyError."""

    def __init__(self, policy: object, name: str) -> None:
        self._policy = policy
        self._who = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._policy, name)
        if not callable(found):
            return found
        return lambda *given: _asked(self._who, name, lambda: found(*given))


def _asked(who: str, method: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # SystemExit is no way out of a policy
        lines = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise PolicyError(f"{who}, {method}(): {text}") from error


def _slot(got: Any, who: str, method: str) -> Slot:
    """``got`` as a Slot of plain numbers."""
    try:
        level, key, quantum = got
        slot = Slot(index(level), key + 0.0, quantum + 0.0)
        good = 0 <= slot.level < MOST_LEVELS and math.isfinite(slot.key) and slot.quantum > 0
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        wanted = "a Slot: level a whole number >= 0, key a finite number, quantum a number above 0"
        raise _returned(who, method, got, wanted)
    return slot


def _returned(who: str, method: str, got: object, wanted: str) -> PolicyError:
    lines = repr(got).splitlines() or [""]
    return PolicyError(f"{who}, {method}() returned {lines[0][:80]}; it must return {wanted}")
