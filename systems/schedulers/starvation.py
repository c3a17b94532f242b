"""Anti-starvation (Autellix, Algorithm 1) without polling: due times in closed form.

A waiting call starves when its program's and its own wait, over their
execution, reach beta (seconds over seconds):

    (row.wait + wait) / (row.exec_s + exec) >= beta

While it waits only ``wait`` grows, so the instant is known in advance:

    due = (beta * row.exec_s - row.wait) + (beta * exec - wait + since)

The first term belongs to the program, the second (the call's *term*) to the
call. So each program keeps its waiting calls in a heap of terms, and only the
earliest due time of each program is in the common heap: a sibling's
completion moves all of them at the cost of one.

Zero execution: a call whose program and itself have run for 0 s has no ratio
and does not starve, however long it waits. It has received no service, so
unless its snapshot says otherwise it is in the first queue already.
"""

from __future__ import annotations

from heapq import heappop, heappush

from systems.process_table import ProcessTable, Row
from vocabulary import INF, Call, Usage

_NOTHING = Usage(0.0, 0.0, 0.0)


class Waiter:
    """A call outside the first queue, as anti-starvation sees it.

    ``usage`` is what it had received when it began to wait, at ``since``;
    the two bases are what the last promotion set to zero (the counters that
    are charged in the end are the host's and stay). ``term`` is INF while
    the call does not wait.
    """

    __slots__ = ("call", "exec_base", "promotions", "since", "term", "usage", "wait_base")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.usage = _NOTHING
        self.since = 0.0
        self.exec_base = 0.0
        self.wait_base = 0.0
        self.promotions = 0
        self.term = INF

    def ran(self) -> bool:
        """Whether it ran since its last promotion."""
        return self.usage.exec_s > self.exec_base


class Group:
    """The waiting calls of one program. ``due``: when the first of them starves,
    too early while ``stale`` (a call stopped waiting); ``queued``: the earliest
    of this group's entries in the common heap."""

    __slots__ = ("calls", "due", "number", "owner", "queued", "row", "stale")

    def __init__(self, owner: Starvation, row: Row, number: int) -> None:
        self.owner = owner
        self.row = row
        self.number = number
        self.calls: list[tuple[float, int, Waiter]] = []
        self.due = INF
        self.queued = INF
        self.stale = False

    def row_changed(self) -> None:
        """The program's counters changed: so did every due time."""
        if self.calls:
            self.owner.refresh(self)

    def offset(self) -> float:
        """The program's part of a due time."""
        return self.owner.beta * self.row.exec_s - self.row.wait

    def earliest(self) -> float:
        """Seconds; INF if none of the calls can starve."""
        calls = self.calls
        while calls and calls[0][2].term != calls[0][0]:
            heappop(calls)
        if not calls:
            return INF
        if self.row.exec_s > 0.0:
            return self.offset() + calls[0][0]
        ran = [term for term, _, w in calls if w.term == term and w.ran()]
        return self.offset() + min(ran, default=INF)

    def take(self, now: float) -> list[Waiter]:
        """The calls that starve at ``now``; they no longer wait for it."""
        offset, known, starving = self.offset(), self.row.exec_s > 0.0, []
        for term, _, waiter in self.calls:
            if waiter.term == term and offset + term <= now and (known or waiter.ran()):
                waiter.term = INF
                starving.append(waiter)
        return starving


class Starvation:
    """Due times of the calls that wait outside the first queue, for one scheduler.

    ``beta`` finite and > 0. ``reset``: what a promotion sets to zero, for the
    ratio only: "call" (the paper), "program" (the row's wait and execution
    too) or "none". A call is promoted at most ``limit`` times.
    """

    def __init__(self, table: ProcessTable, beta: float, reset: str, limit: float) -> None:
        self.beta = beta
        self.promotions = 0
        self._table = table
        self._reset = reset
        self._limit = limit
        self.waiters: dict[int, Waiter] = {}
        self._groups: dict[int, Group] = {}
        self._made = 0
        self._heap: list[tuple[float, int, Group]] = []

    def wait(self, call: Call, usage: Usage | None, now: float) -> None:
        """The call waits from ``now``, outside the first queue, having received ``usage``."""
        waiter = self.waiters.get(call.seq)
        if waiter is None:
            waiter = self.waiters[call.seq] = Waiter(call)
        if waiter.promotions >= self._limit:
            return
        if usage is not None:
            waiter.usage = usage
        waiter.since = now
        used = waiter.usage
        exec_s, wait_s = used.exec_s - waiter.exec_base, used.wait_s - waiter.wait_base
        waiter.term = self.beta * exec_s - wait_s + now
        group = self._groups.get(call.program) or self._group(call.program, now)
        heappush(group.calls, (waiter.term, call.seq, waiter))
        self.refresh(group)

    def run(self, call: Call) -> None:
        """The call does not wait any more."""
        waiter = self.waiters.get(call.seq)
        if waiter is not None:
            self._unwait(waiter)

    def leave(self, call: Call) -> None:
        """The call left the system."""
        waiter = self.waiters.pop(call.seq, None)
        if waiter is not None:
            self._unwait(waiter)

    def served(self, call: Call) -> float:
        """Service received when the call began to wait, in the scheduler's unit."""
        return self.waiters[call.seq].usage.served

    def refresh(self, group: Group) -> None:
        """Recompute when the group's first call starves."""
        group.stale = False
        group.due = due = group.earliest()
        if due < group.queued:
            group.queued = due
            heappush(self._heap, (due, group.number, group))

    def next_due(self) -> float:
        """Earliest due time, INF if none."""
        heap = self._heap
        while heap:
            due, number, group = heap[0]
            if group.stale:
                self.refresh(group)
                continue
            if due == group.due:
                return due
            heappop(heap)
            if due == group.queued:
                group.queued = group.due
                if group.due < INF:
                    heappush(heap, (group.due, number, group))
        return INF

    def pop(self, now: float) -> list[Call]:
        """The calls that starve at ``now``, promoted: counted, their counters reset."""
        starving: list[Waiter] = []
        while self.next_due() <= now:
            group = self._heap[0][2]
            starving += group.take(now)
            self.refresh(group)
        for waiter in starving:
            self._promote(waiter, now)
        return [waiter.call for waiter in starving]

    def forget(self, program: int) -> None:
        """The program is over."""
        group = self._groups.pop(program, None)
        if group is not None:
            group.row.watchers.remove(group)
            group.due = INF

    def _unwait(self, waiter: Waiter) -> None:
        if waiter.term == INF:
            return
        waiter.term = INF
        group = self._groups.get(waiter.call.program)
        if group is not None:
            group.stale = True

    def _group(self, program: int, now: float) -> Group:
        row = self._table.start(program, now)
        self._made += 1
        group = self._groups[program] = Group(self, row, self._made)
        row.watchers.append(group)
        return group

    def _promote(self, waiter: Waiter, now: float) -> None:
        waiter.promotions += 1
        self.promotions += 1
        if self._reset == "none":
            return
        waiter.exec_base = waiter.usage.exec_s
        waiter.wait_base = waiter.usage.wait_s + (now - waiter.since)
        if self._reset == "program":
            self._table.forgive(waiter.call.program)
