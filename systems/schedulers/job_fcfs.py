"""First program, first served: the call order of Continuum (arXiv 2511.02230).

A program keeps the place it took when it arrived, so that its tenth call is
not behind the first calls of programs that came later.
"""

from __future__ import annotations

from systems.knobs import flag
from systems.process_table import ProcessTable
from systems.schedulers.accounts import Accounts
from vocabulary import INF, Call, Slot, Snapshot

AHEAD = 2.0**22
"""Before every arrival (times are below 2**21 s), and exact: keys stay on the time grid."""


class JobFcfs(Accounts):
    """One queue in the order of the programs' arrivals, then of ``Call.seq``.

    ``kept_first``: calls whose thread's KV was kept when they were made come before all others, in the
    same order among themselves (Continuum's pinned jobs first). Default false. Within one level: who runs
    is not displaced. A call keeps its place if what was kept is given up while it waits.

    An engine that cannot see the front end's table (vLLM's worker) takes the
    first call it gets of a program for the program's arrival.
    """

    name = "job-fcfs"

    def __init__(self, *, kept_first: bool = False, table: ProcessTable | None = None) -> None:
        super().__init__(table)
        self.kept_first = flag("kept_first", kept_first)

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """The place of the program."""
        self._admit(call, snap, now)
        row = self.table.start(call.program, now)
        return Slot(0, row.started - AHEAD if self.kept_first and call.kept else row.started, INF)


SCHEDULER = JobFcfs
