"""The schedulers' own rows of our calls: asked for when a call leaves, awaited where it was cut off."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from systems.gateway.call_log import CallLog
from systems.gateway.ticket import Ticket
from systems.gateway.usage import Charge, told_by_rows
from systems.gateway.workers import Worker, Workers

_LOG = logging.getLogger("gateway")
LATE_S = 0.5
"""How long the row of a whole reply may be late: it is written before the reply ends."""
ABORT_S = 5.0
"""How long an engine may take to notice that a client left, and to write the row of that call."""
_LOOK_S = 0.02

Then = Callable[[Ticket, Charge | None], None]


class Rows:
    """The call logs of all engines that have one. ``now``: seconds."""

    def __init__(self, workers: Workers, now: Callable[[], float]) -> None:
        self._logs = {w.id: CallLog(w.target.calls) for w in workers if w.target.calls is not None}
        self._now = now
        self._waiting: list[tuple[float, Worker, Ticket, Then]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._prefix = f"gw{os.getpid():x}.{os.urandom(3).hex()}."

    def __len__(self) -> int:
        """Calls whose row is awaited."""
        return len(self._waiting)

    def kept(self, worker: Worker) -> bool:
        """Whether the engine has a log that can be read."""
        log = self._logs.get(worker.id)
        return log is not None and log.readable

    def name_for(self, client_id: str, seq: int) -> str:
        """What the engine shall call a request: a name that no other has, behind the client's own.

        A row is found by it, so no client may choose it.
        """
        return f"{client_id}-{self._prefix}{seq}" if client_id else f"{self._prefix}{seq}"

    def expect(self, worker: Worker, name: str) -> None:
        """A call is about to be sent there."""
        if self.kept(worker):
            self._logs[worker.id].expect(name)

    def forget(self, worker: Worker, name: str) -> None:
        """Its rows are not wanted any more."""
        if worker.id in self._logs:
            self._logs[worker.id].forget(name)

    def settle(self, worker: Worker, ticket: Ticket, then: Then) -> None:
        """Call ``then`` with what a call's rows say: now, or when they come; with None if they do not."""
        if not self.kept(worker):
            then(ticket, None)
            return
        charge = self._charge(worker, ticket)
        if charge is not None:
            then(ticket, charge)
            return
        patience = LATE_S if ticket.passage.outcome == "finished" else ABORT_S
        self._waiting.append((self._now() + patience, worker, ticket, then))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def close(self) -> None:
        """Wait no more: who is still waiting is charged without a row."""
        if self._timer is not None:
            self._timer.cancel()
        self._look(last=True)
        for log in self._logs.values():
            log.close()

    def _look(self, last: bool = False) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        now = self._now()
        for one in waiting:
            deadline, worker, ticket, then = one
            late = now >= deadline or last or not worker.alive
            charge = self._charge(worker, ticket, late)
            if charge is None and not late:
                self._waiting.append(one)
                continue
            try:
                then(ticket, charge)
            except Exception:  # a policy's: the others are charged all the same
                _LOG.exception("a call is over")
        if self._waiting and not last:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _charge(self, worker: Worker, ticket: Ticket, late: bool = False) -> Charge | None:
        """None until all its rows are there; by those that are, if it is ``late``; what is no row is none."""
        try:
            rows = self._logs[worker.id].rows(ticket.request_id)
            if not rows or (len(rows) < ticket.ask.parts and not late):
                return None
            return told_by_rows(rows, ticket.held_s)
        except (OSError, KeyError, TypeError):
            return None


def repeatable(client_id: str) -> bool:
    """Whether a client's name for its request can be part of ours, and be told back."""
    return 0 < len(client_id) <= 128 and client_id.isascii() and client_id.isprintable()
