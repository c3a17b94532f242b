"""What every scheduler does the same way: snapshots on arrival, charges on leaving.

The table means the same under every policy, so that runs can be compared and
a front end can read it whichever scheduler serves.
"""

from __future__ import annotations

from systems.process_table import ProcessTable
from vocabulary import INF, Call, Slot, Snapshot, Usage

FIRST = Slot(0, 0.0, INF)
"""The slot of every call where nothing but arrival decides (ties: ``Call.seq``)."""


class Accounts:
    """Base of the schedulers: one process table, and each call's snapshot.

    ``table``: the deployment's, or None for one of its own; then the snapshots
    that calls carry are all it knows of other engines. Subclasses set
    ``name`` and answer ``arrive``. The defaults below are those of a policy
    without quanta and without anti-starvation.
    """

    name = "accounts"
    unit = "step"
    clairvoyant = False
    tracks_wait = False
    rule = "sum"

    def __init__(self, table: ProcessTable | None = None) -> None:
        self.table = ProcessTable(self.rule) if table is None else table
        self._services: dict[int, float] = {}

    def _admit(self, call: Call, snap: Snapshot, now: float) -> float:
        """Enter the call; its program's service (unit: ``self.unit``) as of now."""
        service = self.table.arrive(call.program, snap, now).service
        self._services[call.seq] = service
        return service

    def start(self, call: Call, now: float) -> None:
        """Nothing waits for a deadline here."""

    def stop(self, call: Call, usage: Usage, now: float) -> None:
        """Nothing waits for a deadline here."""

    def expire(self, call: Call, served: float, now: float) -> Slot:  # noqa: ARG002
        """Never asked: the quantum is infinite. The slot stays the first."""
        return FIRST

    def next_due(self) -> float:
        """Never."""
        return INF

    def due(self, now: float) -> list[tuple[Call, Slot]]:  # noqa: ARG002
        """Nobody moves."""
        return []

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Charge the program, from the snapshot taken when the call arrived."""
        self.table.charge(call.program, self._services.pop(call.seq), usage, now)

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """A cancelled call has used the engine too."""
        self.finish(call, usage, now)

    def end(self, program: int, now: float) -> None:  # noqa: ARG002
        """Forget the program's row."""
        self.table.end(program)
