"""Round robin over calls, the fair baseline of Autellix's simulation (its section 6).

The paper says no more than the name; the quantum is ours.
"""

from __future__ import annotations

from functools import partial

from systems.knobs import UNITS, at_least, one_of
from systems.process_table import ProcessTable
from systems.schedulers.accounts import Accounts
from vocabulary import Call, Slot, Snapshot

_slot = partial(tuple.__new__, Slot)  # a third of the time of Slot(...): one per arrival and turn


class RoundRobin(Accounts):
    """One queue; a call that has had its quantum goes behind those who wait.

    quantum: service per turn, in ``unit``, above 0. Default 64 steps, the first
        quantum of the other policies here (``levels``). Every turn that others
        wait for costs a preemption. With recompute a call whose KV takes a
        quantum or more to compute again never gets anywhere; infinity is FCFS.
    unit: "step", "s" or "token".
    """

    name = "round-robin"

    def __init__(
        self, *, quantum: float = 64.0, unit: str = "step", table: ProcessTable | None = None
    ) -> None:
        super().__init__(table)
        self.unit = one_of("unit", unit, UNITS)
        self.quantum = at_least("quantum", quantum, 0.0)
        if not self.quantum:
            raise ValueError("quantum must be greater than 0, got 0")
        self._tail = 0.0

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """The tail of the queue."""
        self._admit(call, snap, now)
        return self._append()

    def expire(self, call: Call, served: float, now: float) -> Slot:  # noqa: ARG002
        """The tail of the queue again, with a new quantum."""
        return self._append()

    def _append(self) -> Slot:
        self._tail = tail = self._tail + 1.0
        slot: Slot = _slot((0, tail, self.quantum))
        return slot


SCHEDULER = RoundRobin
