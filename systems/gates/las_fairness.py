"""Least attained service, program by program: who has had most makes room for who has had least."""

from __future__ import annotations

from systems.gates.books import Rules
from systems.gates.capacity import CapacityGate
from systems.gates.ledger import Program
from systems.gates.line import Rank
from systems.gates.victims import until
from systems.knobs import finite, flag, whole


class LasFairness(CapacityGate):
    """Pause who has attained most service, resume who has attained least. Ours, by name only.

    Service is what finished and aborted calls were served, in the scheduler's unit. Programs are let in while
    their contexts fit an engine's KV; above it the one with most service pauses, at once if it acts, else
    when its turn ends. Ties go by size, the larger pauses. ``dt`` (5 s), ``buffer`` (100 tokens),
    ``ageing_s`` (300, with a grace of 10), ``max_hold_s`` (1 800), ``lease_s`` (600), ``release``,
    ``pause_frees_kv``: as in ``thunderagent``; without ageing a program that has had much would wait while
    new ones keep coming.
    """

    name = "las-fairness"

    def __init__(
        self, *, dt: float = 5.0, buffer: int = 100, ageing_s: float = 300.0, max_hold_s: float = 1800.0,
        lease_s: float = 600.0, release: bool = True, pause_frees_kv: bool = False,
    ) -> None:  # fmt: skip
        self.dt, self.buffer = finite("dt", dt, above=True), whole("buffer", buffer)
        self.ageing_s, self.max_hold_s = finite("ageing_s", ageing_s), finite("max_hold_s", max_hold_s)
        self.lease_s, self.release = finite("lease_s", lease_s), flag("release", release)
        self.pause_frees_kv = flag("pause_frees_kv", pause_frees_kv)
        super().__init__(
            Rules(
                dt=self.dt, buffer=self.buffer, ageing_s=self.ageing_s, max_hold_s=self.max_hold_s,
                lease_s=self.lease_s, release=self.release, frees_kv=self.pause_frees_kv,
                phase_priority=False,
            )
        )  # fmt: skip

    def relief(self, programs: list[Program], need: int, now: float) -> list[Program]:  # noqa: ARG002
        """Most service first."""
        return until(sorted(programs, key=lambda p: (-p.served, -p.size, p.id)), need)

    def rank(self, program: Program) -> Rank:
        """Least service first, then who has waited longest."""
        return (program.served, program.idle_since)


GATE = LasFairness
