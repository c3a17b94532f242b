"""Shortest remaining processing time, by program or by call: the oracle others are compared with.

Autellix uses SRPT in simulation only (section 6). Knowing each program's
remaining work it is near optimal for the mean, and no policy without that
knowledge should beat it by much.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial

from systems.knobs import at_least, one_of
from systems.process_table import ProcessTable
from systems.schedulers.accounts import Accounts
from vocabulary import INF, Call, Slot, Snapshot

_slot = partial(tuple.__new__, Slot)  # a third of the time of Slot(...): one a call
_MOST = 1e9
"""Tokens; programs longer than this share the last level."""


class Srpt(Accounts):
    """Order by the output tokens left.

    ``by``: "program" (``Call.remaining``, this call included) or "call"
    (``Call.output``: this call's alone, the oracle of policies over calls).

    ``ratio`` (at least 1.001): a call displaces a running one only if it is in
    a better geometric bin [ratio**i, ratio**(i+1)) of remaining work. Default
    2: a recompute preemption costs a whole prefill, which a small difference
    in remaining work does not earn back; a factor 2 does, and bins of that
    width hold the number of displacements of one call to the logarithm of its
    program's length. Inside a bin the shorter one is admitted first.

    The bin is that of the arrival: the call's own progress, small against
    its program's remaining work, does not move it.
    """

    name = "srpt"
    clairvoyant = True

    def __init__(self, *, ratio: float = 2.0, by: str = "program", table: ProcessTable | None = None) -> None:
        super().__init__(table)
        self.by = one_of("by", by, ("program", "call"))
        self._by_call = self.by == "call"
        self.ratio = at_least("ratio", ratio, 1.001)
        self._edges = [self.ratio]
        while self._edges[-1] < _MOST:
            self._edges.append(self._edges[-1] * self.ratio)

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """Raises ValueError if the host does not tell the remaining work."""
        remaining = call.output if self._by_call else call.remaining
        if remaining is None:
            what = "output length" if self._by_call else f"remaining work of program {call.program}"
            raise ValueError(
                f"srpt needs the {what}, but call {call.seq} does not "
                "carry it; it runs only where programs are known in advance (simulation)"
            )
        self._admit(call, snap, now)
        slot: Slot = _slot((bisect_right(self._edges, remaining), remaining, INF))
        return slot


SCHEDULER = Srpt
