"""A place for as long as a program makes progress: the time a client may be away is what is rationed."""

from __future__ import annotations

from systems.gates.books import Rules
from systems.gates.capacity import CapacityGate
from systems.gates.ledger import ACTIVE, Program
from systems.gates.line import Rank
from systems.gates.victims import until
from systems.knobs import finite, flag, whole


class ProgressTtl(CapacityGate):
    """Who does not come back within ``ttl_s`` (30) of its last reply pauses. Ours, by name only.

    Programs are let in, first come first served, while their contexts fit an engine's KV; a tool that takes
    longer than ``ttl_s`` gives the place away, whether or not somebody waits. Should those that run outgrow
    the KV, who has been away longest pauses first, then whose call began last, at its end. ``dt`` (5 s),
    ``buffer`` (100 tokens), ``max_hold_s`` (1 800), ``lease_s`` (600), ``release``, ``pause_frees_kv``: as
    in ``thunderagent``.
    """

    name = "progress-ttl"

    def __init__(
        self, *, ttl_s: float = 30.0, dt: float = 5.0, buffer: int = 100, max_hold_s: float = 1800.0,
        lease_s: float = 600.0, release: bool = True, pause_frees_kv: bool = False,
    ) -> None:  # fmt: skip
        self.ttl_s, self.dt = finite("ttl_s", ttl_s, above=True), finite("dt", dt, above=True)
        self.buffer, self.max_hold_s = whole("buffer", buffer), finite("max_hold_s", max_hold_s)
        self.lease_s, self.release = finite("lease_s", lease_s), flag("release", release)
        self.pause_frees_kv = flag("pause_frees_kv", pause_frees_kv)
        super().__init__(
            Rules(
                dt=self.dt, buffer=self.buffer, ageing_s=0.0, max_hold_s=self.max_hold_s,
                lease_s=self.lease_s, release=self.release, frees_kv=self.pause_frees_kv,
                phase_priority=False,
            )
        )  # fmt: skip

    def relief(self, programs: list[Program], need: int, now: float) -> list[Program]:  # noqa: ARG002
        """Who has been away longest, then whose call began last."""
        acting = sorted((p for p in programs if p.acting), key=lambda p: (p.since, p.id))
        reasoning = sorted((p for p in programs if not p.acting), key=lambda p: (-p.heard, p.id))
        return until([*acting, *reasoning], need)

    def rank(self, program: Program) -> Rank:
        """First come, first served."""
        return (program.idle_since,)

    def overdue(self, now: float) -> list[Program]:
        """Who has been away for too long."""
        programs = self._ledger.programs.values()
        return [p for p in programs if p.state == ACTIVE and p.acting and now - p.since >= self.ttl_s]


GATE = ProgressTtl
