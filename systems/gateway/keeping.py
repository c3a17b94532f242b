"""Retention at the gateway: what programs left is kept in their engines while they are away.

The policy is one object per deployment; engines with a control socket are told (``outbox``). The same as
``bench.drivers.keeping`` on virtual time, but that an engine hears at its next step, has one deadline for all
threads of a program, and gives kept KV up in its own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from systems.gateway.outbox import Outbox
from systems.gateway.programs import Program
from systems.gateway.ticket import Ticket
from systems.gateway.usage import Counted
from systems.gateway.workers import Workers
from systems.protocols import Away, Retention
from vocabulary import BLOCK, EngineView, KeepEvent, Segment


@dataclass(slots=True)
class _Thread:
    """``calls`` under way, ``index`` of the last one. What that left: in which engine (-1: nothing), how long
    its context and its reply are (tokens). ``tool``: what it is said to be in before that was settled."""

    calls: int = 0
    index: int = 0
    engine: int = -1
    tokens: int = 0
    output_tokens: int = 0
    prompt: tuple[Segment, ...] = ()
    until: float = 0.0
    away: bool = False
    tool: str | None = None


class Keeping:
    """``waiting(view)``: prompt tokens that wait at an engine, or at the door for it; ``told``: of events."""

    def __init__(
        self, retention: Retention, workers: Workers, outbox: Outbox, now: Callable[[], float],
        waiting: Callable[[EngineView], int], told: Callable[[KeepEvent], None],
    ) -> None:  # fmt: skip
        self.retention: Any = retention
        self.reads_prompt = bool(getattr(retention, "reads_prompt", False))
        self._watches = bool(getattr(retention, "watches", False))
        self._workers = workers
        self._outbox = outbox
        self._now = now
        self._waiting = waiting
        self._told = told
        self._threads: dict[int, dict[str, _Thread]] = {}
        self._back: set[int] = set()
        self._said: dict[tuple[int, int], float] = {}

    def asked(self, ticket: Ticket) -> None:
        """A thread asks: ``Call.kept`` is what is kept for it."""
        call, now = ticket.call, self._now()
        thread = self._threads.setdefault(call.program, {}).setdefault(call.thread, _Thread())
        thread.calls += 1
        thread.index = call.index
        thread.tool = None
        call.kept = thread.tokens // BLOCK * BLOCK if thread.until >= now else 0
        if thread.away:
            thread.away = False
            self._back.add(call.seq)
            if self._watches:
                self.retention.called(call.program, call.thread, now)
                self._tell()

    def ended(self, ticket: Ticket, counted: Counted | None) -> None:
        """A call is settled; ``counted`` by its engine, None: it did not say, or never had it."""
        call, thread = ticket.call, self._threads[ticket.call.program][ticket.call.thread]
        thread.calls -= 1
        if ticket.worker is None:  # what is kept was not touched
            self._back.discard(call.seq)
            return
        thread.engine, thread.until = -1, 0.0
        if call.seq in self._back:
            self._back.discard(call.seq)
            if self._watches and counted is not None and counted.cached >= 0:  # else it teaches nothing
                self.retention.back(call.program, call.thread, counted.cached, counted.prompt, self._now())
                self._tell()
        if ticket.passage.outcome == "finished":
            prompt, output, _ = counted or (call.prompt_tokens, 0, -1)
            thread.engine, thread.tokens, thread.output_tokens = ticket.worker.id, prompt + output, output
            thread.prompt = call.prompt
            if thread.tool is not None:
                self.away(ticket.program, call.thread, thread.tool)

    def away(self, program: Program, name: str, tool: str, after: int | None = None) -> float:
        """A thread goes into a tool ("human": to a person): until when (s) what it left is kept, 0: not.

        ``after``: index of its call before; word of a tool that comes behind the next call is too late.
        """
        thread = self._threads.get(program.number, {}).get(name)
        if thread is None or thread.away or after not in (None, thread.index):
            return 0.0
        if thread.calls:  # its end is not known here yet
            thread.tool = tool
            return 0.0
        if not self._outbox.reaches(thread.engine):
            return 0.0
        thread.away, now = True, self._now()
        if self._watches:
            view = self._workers[thread.engine].view()
            self.retention.look(view, self._waiting(view), now)
        away = Away(
            program.number, name, thread.tokens, tool, thread.output_tokens, thread.engine,
            prompt=thread.prompt,
        )  # fmt: skip
        until = self.retention.idle(away, now)
        thread.until = until if until > now else 0.0
        self._tell()
        self._say(program, thread.engine, now)
        return thread.until

    def end(self, program: Program) -> None:
        """The program is over; its engines hear of that, which ends all they keep of it."""
        threads = self._threads.pop(program.number, None)
        if threads is None:
            return
        for engine in program.engines:
            self._said.pop((program.number, engine), None)
        if self._watches:
            self.retention.end(program.number, self._now())
            self._tell()

    def _say(self, program: Program, engine: int, now: float) -> None:
        """An engine has one deadline for all of a program's threads: the latest of those that are away."""
        threads = self._threads[program.number].values()
        until = max((one.until for one in threads if one.engine == engine and one.away), default=0.0)
        key = program.number, engine
        if until > now:
            self._said[key] = until
            self._outbox.retain(program.name, engine, until)
        elif self._said.pop(key, 0.0) > now:
            self._outbox.release(program.name, engine)

    def _tell(self) -> None:
        events: list[KeepEvent] | None = getattr(self.retention, "events", None)
        if events:
            found = events[:]
            events.clear()
            for event in found:
                self._told(event)


def waiting_tokens(tickets: Iterable[Ticket], view: EngineView, engines: int) -> int:
    """Prompt tokens of our calls that are at the engine but not in its batch, by its last /metrics, and
    this engine's share of those that a gate holds."""
    there, at_the_door = list[Ticket](), 0
    for ticket in tickets:
        if ticket.worker is not None and ticket.worker.id == view.id:
            there.append(ticket)
        elif ticket.held and not ticket.admitted:
            at_the_door += ticket.call.prompt_tokens
    there.sort(key=lambda ticket: ticket.last_sent)
    return sum(ticket.call.prompt_tokens for ticket in there[view.running :]) + at_the_door // engines
