"""The schedulers' own rows of our calls: asked for when a call leaves, awaited where it was cut off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from systems.gateway.call_log import CallLog
from systems.gateway.ticket import Ticket
from systems.gateway.usage import Charge, told_by_rows
from systems.gateway.workers import Worker, Workers

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
        self._names: set[str] = set()

    def __len__(self) -> int:
        """Calls whose row is awaited."""
        return len(self._waiting)

    def kept(self, worker: Worker) -> bool:
        """Whether the engine has a log that can be read."""
        log = self._logs.get(worker.id)
        return log is not None and log.readable

    def name_for(self, key: str, seq: int) -> str:
        """What the engine shall call a request: the client's own name, unless an open call has it."""
        if not key or len(key) > 128 or not key.isascii() or not key.isprintable():
            return f"{self._prefix}{seq}"
        return key if key not in self._names else f"{key}-r{seq}"

    def expect(self, worker: Worker, name: str) -> None:
        """A call is about to be sent there."""
        self._names.add(name)
        if self.kept(worker):
            self._logs[worker.id].expect(name)

    def forget(self, worker: Worker, name: str) -> None:
        """Its rows are not wanted any more."""
        self._names.discard(name)
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
            charge = self._charge(worker, ticket)
            if charge is None and now < deadline and not last and worker.alive:
                self._waiting.append(one)
            else:
                then(ticket, charge)
        if self._waiting and not last:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _charge(self, worker: Worker, ticket: Ticket) -> Charge | None:
        rows = self._logs[worker.id].rows(ticket.request_id)
        return told_by_rows(rows, ticket.held_s) if rows else None
