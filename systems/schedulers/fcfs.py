"""First come, first served: the order of submission, no preemption by policy (vLLM's default)."""

from __future__ import annotations

from systems.schedulers.accounts import FIRST, Accounts
from vocabulary import Call, Slot, Snapshot


class Fcfs(Accounts):
    """One queue in the order of ``Call.seq``. No knobs."""

    name = "fcfs"

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """Always the same slot."""
        self._admit(call, snap, now)
        return FIRST


SCHEDULER = Fcfs
