"""Retention on virtual time: what programs left is kept in engines while they are away.

The policy is asked when a thread goes into a tool, at the same time as its call ended, before any later step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.drivers.policy_events import keep_rows
from systems.protocols import Away, Retention
from vocabulary import BLOCK, Call, Decision, Finished, KeepEvent, Segment


@dataclass(slots=True)
class _Left:
    """What a thread left: in which engine, how long its context and its reply are (tokens)."""

    engine: int
    tokens: int
    output_tokens: int
    prompt: tuple[Segment, ...]
    until: float = 0.0
    away: bool = False


class Keeper:
    """Asks ``retention`` and tells ``engines``; ``at_the_door``: prompt tokens that a gate holds."""

    def __init__(self, retention: Retention, engines: Sequence[Any], at_the_door: Callable[[], int]) -> None:
        self.retention: Any = retention
        self.engines = engines
        self.reads_prompt = bool(getattr(retention, "reads_prompt", False))
        self._watches = bool(getattr(retention, "watches", False))
        self._clairvoyant = bool(getattr(retention, "clairvoyant", False))
        self._at_the_door = at_the_door
        self._left: dict[int, dict[str, _Left]] = {}
        self._asked: dict[int, float] = {}
        for engine in engines:
            engine.victims = retention.victims
            engine.firm = bool(getattr(retention, "firm", False))

    def away(self, program: int, thread: str, tool: str, duration: float, now: float) -> None:
        """A thread goes into a tool ("human": a person thinks), ``duration`` seconds if nothing delays it."""
        left = self._left.get(program, {}).get(thread)
        if left is None or left.away:
            return
        left.away = True
        engine = self.engines[left.engine]
        if self._watches:
            waiting = engine.waiting_tokens() + self._at_the_door() // len(self.engines)
            self.retention.look(engine.view(), waiting, now)
        known = duration if self._clairvoyant else None
        away = Away(program, thread, left.tokens, tool, left.output_tokens, left.engine, known, left.prompt)
        until = self.retention.idle(away, now)
        if until > now and engine.retain(program, thread, until, 0, now):
            left.until = until

    def asked(self, call: Call, now: float) -> int:
        """A thread asks again: tokens that are kept for it, as far as the front knows."""
        left = self._left.get(call.program, {}).get(call.thread)
        if left is None:
            return 0
        if left.away:
            self._asked[call.seq] = now
            if self._watches:
                self.retention.called(call.program, call.thread, now)
        return left.tokens // BLOCK * BLOCK if left.until >= now else 0

    def sent(self, call: Call, engine: int, now: float) -> None:
        """The call goes to ``engine``: what is kept for its thread on another one serves nobody any more."""
        left = self._left.get(call.program, {}).get(call.thread)
        if left is not None and left.until > now and left.engine != engine:
            self.engines[left.engine].retain(call.program, call.thread, now, 0, now)
            left.until = 0.0

    def gave_up(self, call: Call) -> None:
        """A call left the door without having been sent: its thread is still where it was."""
        self._asked.pop(call.seq, None)

    def dropped(self, program: int, engine: int) -> None:
        """What the program left on ``engine`` is to go, so nothing of it is kept from now on."""
        threads = self._left.get(program, {})
        for thread, left in list(threads.items()):
            if left.engine == engine and left.away:
                left.until = 0.0
            elif left.engine == engine:  # the policy has not been asked, and need not be
                del threads[thread]

    def ended(self, row: Finished) -> None:
        """A call left its engine: what its thread left there."""
        call = row.call
        asked = self._asked.pop(call.seq, None)
        if asked is not None and self._watches:
            self.retention.back(call.program, call.thread, row.cached_tokens, call.prompt_tokens, asked)
        threads = self._left.setdefault(call.program, {})
        if row.aborted:
            threads.pop(call.thread, None)
        else:
            tokens = call.prompt_tokens + row.output_tokens
            threads[call.thread] = _Left(row.engine, tokens, row.output_tokens, call.prompt)

    def over(self, program: int, now: float) -> None:
        """The program is over."""
        if self._left.pop(program, None) is not None:
            for engine in self.engines:
                engine.release(program, now)
        if self._watches:
            self.retention.end(program, now)

    def decisions(self) -> Iterator[Decision]:
        """What the policy thought since the last time, as rows: ``call`` is the program."""
        events: list[KeepEvent] | None = getattr(self.retention, "events", None)
        for event in events or ():
            yield from keep_rows(event)
        if events:
            events.clear()


def totals(engines: Sequence[Any]) -> dict[str, float]:
    """What was kept, over all engines: counts, and blocks dropped."""
    found: dict[str, float] = {}
    for engine in engines:
        for name, value in engine.keeping_counts().items():
            found[name] = found.get(name, 0) + value
    return found
