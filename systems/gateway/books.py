"""The books: every call that arrives leaves exactly once, and is charged to its program when it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from systems.gateway.bodies import Ask, Lengths, segments
from systems.gateway.door import Door
from systems.gateway.errors import Refused
from systems.gateway.identity import Caller
from systems.gateway.keeping import Keeping
from systems.gateway.observe import Observer, Passage
from systems.gateway.programs import Programs
from systems.gateway.rows import Rows, repeatable
from systems.gateway.ticket import Ticket
from systems.gateway.turns import Turns
from systems.gateway.usage import Charge, Counted, told_by_reply
from systems.gateway.workers import Worker
from vocabulary import Call, Usage

_LOG = logging.getLogger("gateway")
_FAILED = ("disconnected", "lost", "timeout", "error")
"""Outcomes after which the same body again is the same turn."""


class Books:
    """Opens a ticket for each call and settles it.

    ``unit``: of service; ``reads_prompt``: the router sees prompts. ``keeping``: None: nothing is kept;
    ``hears_tools``: clients say when a tool begins. ``open``: tickets that are not charged.
    """

    def __init__(
        self,
        programs: Programs,
        door: Door,
        rows: Rows,
        observers: Sequence[Observer],
        now: Callable[[], float],
        *,
        unit: str,
        reads_prompt: bool = False,
        keeping: Keeping | None = None,
        hears_tools: bool = False,
    ) -> None:
        self.open: set[Ticket] = set()
        self.lengths = Lengths()
        self._programs = programs
        self._door = door
        self._rows = rows
        self._observers = observers
        self._now = now
        self._unit = unit
        self._reads_prompt = reads_prompt
        self._keeping = keeping
        self._hears_tools = hears_tools
        self._numbers = count()
        self._nobodys = Turns()

    def arrive(self, ask: Ask, caller: Caller, arrived: float) -> Ticket:
        """A call is here, and about to ask the gate. An attempt at the same turn that is open is cut off."""
        length = self.lengths.of(ask)
        prompt = segments(ask) if self._reads_prompt else ()
        program = self._programs.start(caller.name, arrived)
        turns = program.turns if caller.name else self._nobodys
        turn, before = turns.take(caller, hash(ask.raw), ask.alike)
        if before is not None and before.ticket is not None:
            text = "given up: the same turn was asked for again"
            self._cut(before.ticket, Refused(409, text, outcome="disconnected"))
        seq = next(self._numbers)
        passage = Passage(
            seq, program.number, caller.name, caller.thread, turn.index, ask.endpoint.path, ask.stream,
            arrived, attempt=turn.attempt, bytes_in=len(ask.raw),
        )  # fmt: skip
        call = Call(seq, program.number, caller.thread, turn.index, length, ask.model, prompt=prompt)
        client_id = caller.request_id if repeatable(caller.request_id) else ""
        name = self._rows.name_for(client_id, seq)
        ticket = Ticket(ask, program, passage, call, name, turn, asyncio.current_task(), client_id)
        turn.ticket = ticket
        self.open.add(ticket)
        self._programs.hold(program, arrived)
        for observer in self._observers:
            observer.arrived(passage)
        if self._keeping is not None and caller.name:
            try:
                self._keeping.asked(ticket)
            except Exception:  # a policy's
                _LOG.exception("retention: program %d asks", program.number)
        return ticket

    def held(self, ticket: Ticket) -> None:
        """The gate holds it."""
        ticket.held = True
        for observer in self._observers:
            observer.held(ticket.passage)

    def send(self, ticket: Ticket, worker: Worker) -> None:
        """It goes to an engine; for the second time if the first one was lost."""
        before, ticket.worker = ticket.worker, worker
        passage = ticket.passage
        if before is None:
            ticket.snap = self._programs.send(ticket.program, worker.id)
        else:
            before.calls -= 1
            self._rows.forget(before, ticket.request_id)
            self._programs.move(ticket.program, worker.id)
        worker.calls += 1
        self._rows.expect(worker, ticket.request_id)
        ticket.good, ticket.last_sent = False, self._now()
        passage.engine, passage.t_send = worker.id, ticket.last_sent
        if before is None:
            ticket.first_sent = ticket.last_sent
        for observer in self._observers:
            observer.sent(passage)

    def first(self, ticket: Ticket) -> None:
        """The first bytes of its reply go to the client."""
        for observer in self._observers:
            observer.first(ticket.passage)

    def leave(self, ticket: Ticket, outcome: str, status: int, reason: str = "") -> None:
        """The client's side is over. It is charged now, or as soon as the scheduler's row is there."""
        passage = ticket.passage
        if passage.outcome:  # it has left; what fails now is only the rest of the reply
            return
        passage.outcome, passage.status, passage.reason = outcome, status, reason
        passage.t_end = self._now()
        ticket.task = None
        if outcome in _FAILED:  # now: its retry may be here before the scheduler's row is
            ticket.turn.fail(ticket.ask.alike())
        worker = ticket.worker
        if worker is None:
            self._give_up(ticket)
            return
        passage.t_send = ticket.first_sent  # what a lost engine took is not the gateway's
        if ticket.good or outcome == "disconnected" or ticket.cut is not None:
            self._rows.settle(worker, ticket, self._charged)
        else:  # the scheduler never had it, or died with it
            self._charged(ticket, None)

    def refuse(self, passage: Passage) -> None:
        """A request that is no call: nobody's, but counted."""
        for observer in self._observers:
            observer.arrived(passage)
            observer.left(passage)

    def number(self) -> int:
        """Of the next passage."""
        return next(self._numbers)

    def cut_off(self, refused: Refused) -> list[asyncio.Task[Any]]:
        """Give up all calls that are under way: their tasks, which tell their clients."""
        tasks = [ticket.task for ticket in self.open if ticket.task is not None]
        for ticket in list(self.open):
            self._cut(ticket, refused)
        return tasks

    def _cut(self, ticket: Ticket, refused: Refused) -> None:
        ticket.cut = ticket.cut or refused
        if ticket.task is not None:
            ticket.task.cancel()

    def _give_up(self, ticket: Ticket) -> None:
        usage = Usage(0.0, 0.0, ticket.held_s)
        self._note(ticket, Charge(usage, ""))
        self._close(ticket)
        try:
            self._left(ticket, None)
            if ticket.admitted:
                self._door.abort(ticket.call, usage)
        finally:  # a gate that raises must not keep the program
            self._programs.give_up(ticket.program, ticket.held_s, self._now())

    def _charged(self, ticket: Ticket, charge: Charge | None) -> None:
        """``charge``: what its scheduler's rows say; None if there are none."""
        worker, passage = ticket.worker, ticket.passage
        assert worker is not None  # it was sent
        if charge is None:
            charge = self._told_by_reply(ticket, worker)
        self._rows.forget(worker, ticket.request_id)
        worker.calls -= 1
        counted = self._note(ticket, charge)
        told = (None, None) if counted is None else (counted.prompt + counted.output, counted.prompt)
        done = self._door.finish if passage.outcome == "finished" else self._door.abort
        self._close(ticket)
        try:
            self._left(ticket, counted)
            done(ticket.call, charge.usage, *told)
        finally:  # as above
            self._programs.charge(ticket.program, ticket.snap, charge.usage, self._now())

    def _left(self, ticket: Ticket, counted: Counted | None) -> None:
        """What the call left is kept or not. Never raises: the gate must hear of its end all the same."""
        keeping, name = self._keeping, ticket.passage.name
        if keeping is None or not name:
            return
        try:
            keeping.ended(ticket, counted)
            if not self._hears_tools and ticket.passage.outcome == "finished":
                keeping.away(ticket.program, ticket.call.thread, ticket.ask.tool or str(ticket.tools or ""))
        except Exception:  # a policy's
            _LOG.exception("retention of what program %d left", ticket.program.number)

    def _told_by_reply(self, ticket: Ticket, worker: Worker) -> Charge:
        """A stream that was cut off said no usage: then its pieces count, about one a token."""
        counted = ticket.counted
        if counted is None and ticket.good and ticket.ask.stream:
            counted = Counted(ticket.call.prompt_tokens, ticket.passage.chunks)
        most = worker.target.max_num_batched_tokens
        return told_by_reply(self._unit, counted, ticket.took, ticket.held_s, most)

    def _note(self, ticket: Ticket, charge: Charge) -> Counted | None:
        """On the passage; the tokens the engine counted, None if it did not say."""
        passage = ticket.passage
        passage.served, passage.exec_s, passage.wait_s = charge.usage
        passage.source = charge.source
        logged = charge.counted if charge.source == "log" else None
        counted = ticket.counted or logged
        if counted is not None and counted.cached < 0 and logged is not None:
            counted = counted._replace(cached=min(counted.prompt, logged.cached))
        if counted is not None:
            passage.prompt_tokens, passage.output_tokens, passage.cached_tokens = counted
            self.lengths.learn(ticket.ask, counted.prompt)
        return counted

    def _close(self, ticket: Ticket) -> None:
        """Not open any more; everybody is told."""
        passage = ticket.passage
        self.open.discard(ticket)
        turns = ticket.program.turns if passage.name else self._nobodys
        turns.over(ticket.turn, passage.outcome in _FAILED)
        if not passage.name:
            turns.forget(ticket.turn)
        for observer in self._observers:
            observer.left(passage)
