"""Carries one call through: from the client's request over gate, router and engine to the client's reply."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Protocol

from systems.gateway.bodies import caller_fields, observed, outgoing
from systems.gateway.books import Books
from systems.gateway.door import Door
from systems.gateway.errors import Refused
from systems.gateway.headers import returned
from systems.gateway.intake import Intake
from systems.gateway.options import GatewayOptions
from systems.gateway.outlet import Hearts, Outlet, Sent
from systems.gateway.rows import Rows
from systems.gateway.ticket import Ticket
from systems.gateway.tools import Tools
from systems.gateway.wires import Onward, Wires
from systems.gateway.workers import Worker, Workers
from systems.http1 import BrokenOff, CannotConnect, Exchange, Receive

RETRY_S = 5
"""Seconds after which a client that was sent away may try again."""


class Listener(Protocol):
    """Hears a reply from its beginning."""

    def through(self, receive: Receive) -> Receive:
        """What takes its pieces, on their way to ``receive``."""


_OURS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)
"""Errors of connecting that say nothing of the engine."""


class Carrier:
    """``origin``: time.monotonic() when the gateway began; ``now``: seconds since then.

    ``names_tools``: replies are read for the tool they ask for. ``listens``: makes a listener for each call
    that is sent; None: nobody listens."""

    def __init__(
        self, options: GatewayOptions, workers: Workers, door: Door, books: Books, rows: Rows,
        wires: Wires, hearts: Hearts, now: Callable[[], float], origin: float, names_tools: bool = False,
    ) -> None:  # fmt: skip
        self._options = options
        self._workers = workers
        self._door = door
        self._books = books
        self._rows = rows
        self._wires = wires
        self._hearts = hearts
        self._now = now
        self._origin = origin
        self._names_tools = names_tools
        self.listens: Callable[[Ticket], Listener] | None = None

    async def carry(self, outlet: Outlet, ticket: Ticket, onward: Onward) -> Sent:
        """The reply, sent or about to be. The ticket is settled whatever happens."""
        outlet.streams = ticket.ask.stream
        if outlet.streams:
            outlet.written_at = self._now()
            self._hearts.add(outlet)
        try:
            return await self._carry(ticket, outlet, onward)
        except Refused as refused:
            return await self._refuse(ticket, outlet, refused)
        except asyncio.CancelledError:
            if ticket.cut is None:
                self._books.leave(ticket, "disconnected", 200 if outlet.begun else 0, "the client left")
                raise
            return await self._give_way(ticket, outlet, ticket.cut)
        except Exception as error:
            self._books.leave(ticket, "error", 500, f"{type(error).__name__}: {error}")
            raise
        finally:
            self._hearts.remove(outlet)

    async def _carry(self, ticket: Ticket, outlet: Outlet, onward: Onward) -> Sent:
        deadline = ticket.passage.t_arrive + self._options.max_hold_s
        engine = await self._admitted(ticket, deadline)
        lost: set[int] = set()
        while True:
            worker = await self._routed(ticket, engine, deadline, lost)
            self._books.send(ticket, worker)
            try:
                return await self._exchange(ticket, worker, outlet, onward)
            except CannotConnect as error:  # it cannot have seen the call: it is down, that is all
                if getattr(error.__cause__, "errno", None) in _OURS:
                    raise Refused(
                        503, f"the gateway is out of connections: {error}", retry_s=RETRY_S
                    ) from None
                self._workers.down(worker, str(error))
            except BrokenOff as error:  # it may be the call that breaks engines: once more, not on and on
                worker.doubt.set()
                if lost or outlet.passed:
                    raise Refused(502, f"the engine broke off: {error}", outcome="lost") from None
                lost.add(worker.id)
            engine = None

    # -- before an engine has it -------------------------------------------------------

    async def _admitted(self, ticket: Ticket, deadline: float) -> int | None:
        """Wait for the gate; the engine it names. Raises Refused when it takes too long."""
        if not self._workers.any_alive:
            await self._until_alive(ticket, deadline)
        began = self._now()
        try:
            engine = await self._door.enter(ticket.call, partial(self._books.held, ticket), deadline - began)
        except TimeoutError:
            text = f"held by the gate for {self._options.max_hold_s:g} s"
            raise Refused(503, text, outcome="timeout", retry_s=RETRY_S) from None
        finally:
            if ticket.held:
                ticket.held_s += self._now() - began
        ticket.admitted = True
        ticket.passage.t_admit = self._now()
        return engine

    async def _routed(self, ticket: Ticket, engine: int | None, deadline: float, lost: set[int]) -> Worker:
        """The engine it goes to: the gate's choice if that lives, else the router's."""
        while True:
            if engine is not None and self._workers[engine].alive:
                return self._workers[engine]
            found = self._door.route(ticket.call, lost)
            if found is not None:
                return self._workers[found]
            if lost:
                raise Refused(502, "the engine broke off, and no other one lives", outcome="lost")
            await self._until_alive(ticket, deadline)

    async def _until_alive(self, ticket: Ticket, deadline: float) -> None:
        """Engines that have never answered are starting; those that have may come back."""
        began, late = self._now(), not self._workers.any_answered
        limit = (self._options.late_s if late else deadline) - began
        try:
            async with asyncio.timeout(max(0.0, limit)):
                await self._workers.until_alive()
        except TimeoutError:
            why = "; ".join(f"{worker.url}: {worker.why}" for worker in self._workers)
            raise Refused(503, f"no engine lives ({why})", outcome="timeout", retry_s=RETRY_S) from None
        finally:
            ticket.held_s += self._now() - began

    # -- the exchange ------------------------------------------------------------------

    async def _exchange(self, ticket: Ticket, worker: Worker, outlet: Outlet, onward: Onward) -> Sent:
        ask, passage = ticket.ask, ticket.passage
        body = self._body(ticket, wants_usage=not self._rows.kept(worker))
        intake = Intake(passage, self._origin, ask.hides_usage, partial(self._books.first, ticket))
        receive: Receive = intake.receive
        if self._names_tools:
            ticket.tools = Tools()
            receive = ticket.tools.through(receive)
        if self.listens is not None:
            receive = self.listens(ticket).through(receive)
        async with await self._wires.post(worker, onward, ticket.request_id, body, receive) as exchange:
            if ask.stream and exchange.status == 200:
                return await self._stream(ticket, exchange, intake, outlet)
            await exchange.wait()
            return await self._whole(ticket, exchange, intake, outlet)

    def _body(self, ticket: Ticket, *, wants_usage: bool) -> bytes:
        ask, passage = ticket.ask, ticket.passage
        if self._options.observe:
            return observed(ask, wants_usage=wants_usage)
        fields = caller_fields(passage.name, passage.thread, ticket.snap)
        return outgoing(ask, fields, ticket.request_id, wants_usage=wants_usage)

    async def _stream(self, ticket: Ticket, exchange: Exchange, intake: Intake, outlet: Outlet) -> Sent:
        """Piece by piece, as they come."""
        ticket.good = True
        await outlet.begin(exchange.status, _headers(ticket, exchange))
        intake.open(outlet, exchange)
        try:
            await exchange.wait()
        finally:
            intake.close(self._now())
        ticket.counted = intake.counted()
        outcome = "error" if intake.failed() else "finished"
        self._books.leave(ticket, outcome, exchange.status)  # before the client can know that it is over
        return await outlet.end()

    async def _whole(self, ticket: Ticket, exchange: Exchange, intake: Intake, outlet: Outlet) -> Sent:
        """In one piece, so that an engine may be lost until it is here; the engine's errors, too."""
        status, body = exchange.status, intake.whole()
        ticket.good = status < 400
        ticket.counted = intake.counted() if ticket.good else None
        ticket.passage.bytes_out = len(body)
        self._books.first(ticket)
        reason = "" if ticket.good else f"the engine answers {status}"
        self._books.leave(ticket, "finished" if ticket.good else "error", status, reason)
        if outlet.begun:  # by a heartbeat: its status cannot be changed any more
            outlet.fail(body, self._now())
            return await outlet.end()
        return outlet.whole(status, _headers(ticket, exchange), body)

    # -- other ends --------------------------------------------------------------------

    async def _refuse(self, ticket: Ticket, outlet: Outlet, refused: Refused) -> Sent:
        self._books.leave(ticket, refused.outcome, refused.status, refused.message)
        return await outlet.refuse(refused, self._now())

    async def _give_way(self, ticket: Ticket, outlet: Outlet, cut: Refused) -> Sent:
        """We gave it up, its client is still there: the same turn came again, or the gateway stops."""
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return await self._refuse(ticket, outlet, cut)


def _headers(ticket: Ticket, exchange: Exchange) -> list[tuple[str, str]]:
    """The reply's, with the client's name of the request for ours."""
    found = returned(exchange.headers)
    if not ticket.client_id:
        return found
    return [(name, ticket.client_id if value == ticket.request_id else value) for name, value in found]
