"""ATLAS with the program's graph known: Autellix, section 4, equation 2.

    p(call) = max over its parents of p(parent) + t(parent), 0 without parents

where t is the service the parent received. ``atlas`` has one number per program
instead, the largest p + t so far, which a call of a shorter branch inherits
from the longer one. Equal on chains, and wherever all branches are joined
before the next call; different where branches run on by themselves.
"""

from __future__ import annotations

from systems.schedulers.levels import Levels
from vocabulary import Call, Snapshot, Usage


class AtlasDag(Levels):
    """A call enters by its own longest path; knobs of ``Levels``.

    Paths are in the process table, so engines that share it agree, and are
    forgotten with the program. A parent that this table has not seen complete
    (it ran where the table is another one) counts as the program's longest path.
    """

    name = "atlas-dag"
    rule = "max"

    def _admit(self, call: Call, snap: Snapshot, now: float) -> float:
        start = self.table.arrive(call.program, snap, now).start_of(call.parents)
        self._services[call.seq] = start
        return start

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Note the call's path for its children, then leave and charge."""
        self.table.extend(call.program, (call.thread, call.index), self._services[call.seq] + usage.served)
        super().finish(call, usage, now)


SCHEDULER = AtlasDag
