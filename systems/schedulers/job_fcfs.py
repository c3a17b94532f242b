"""First program, first served: the call order of Continuum (arXiv 2511.02230).

A program keeps the place it took when it arrived, so that its tenth call is
not behind the first calls of programs that came later.
"""

from __future__ import annotations

from systems.schedulers.accounts import Accounts
from vocabulary import INF, Call, Slot, Snapshot


class JobFcfs(Accounts):
    """One queue in the order of the programs' arrivals, then of ``Call.seq``. No knobs.

    An engine that cannot see the front end's table (vLLM's worker) takes the
    first call it gets of a program for the program's arrival.
    """

    name = "job-fcfs"

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """The place of the program."""
        self._admit(call, snap, now)
        row = self.table.start(call.program, now)
        return Slot(0, row.started, INF)


SCHEDULER = JobFcfs
