"""ThunderAgent as NVIDIA Dynamo's port has it (pull request 9448 and follow-ups), as far as a gate can."""

from __future__ import annotations

from systems.gates.books import Rules
from systems.gates.capacity import CapacityGate
from systems.gates.knobs import flag, number, whole
from systems.gates.ledger import Program
from systems.gates.line import Rank
from systems.gates.victims import acting_first


class ThunderAgentDynamo(CapacityGate):
    """Above ``pause_at`` (.95) of an engine's KV pause down to ``pause_to`` (.80), resume up to ``resume_to``
    (.85): what resumes does not pause again at the next check.

    Acting programs weigh all they hold (no decay); shortest first, acting first, as in the paper. Sizes come
    from usage, ``buffer`` 0; ``most_running`` programs per engine at most (0, the default: no limit);
    ``idle_ttl_s`` (600): forgotten if not heard of for so long; ``shared_prefix`` (pull request 15105).

    Read into it: what the port does to reasoning programs, a lower priority in the engine, is here what
    ``thunderagent`` does, a mark to pause when the turn ends, since a gate stamps no priorities; ``dt`` (5 s)
    and the longest hold, 1 800 s, are the original's; it resumes where there is most room.
    """

    name = "thunderagent-dynamo"

    def __init__(
        self, *, dt: float = 5.0, pause_at: float = 0.95, pause_to: float = 0.80, resume_to: float = 0.85,
        most_running: int = 0, buffer: int = 0, idle_ttl_s: float = 600.0, max_hold_s: float = 1800.0,
        release: bool = True, shared_prefix: bool = False, pause_frees_kv: bool = False,
    ) -> None:  # fmt: skip
        self.dt = number("dt", dt, above=True)
        self.pause_at = number("pause_at", pause_at, above=True)
        self.pause_to = number("pause_to", pause_to, above=True)
        self.resume_to = number("resume_to", resume_to, above=True)
        if not self.pause_to <= self.resume_to <= self.pause_at:
            raise ValueError(
                f"pause_to <= resume_to <= pause_at is needed, got {pause_to}, {resume_to}, {pause_at}"
            )
        self.most_running, self.buffer = whole("most_running", most_running), whole("buffer", buffer)
        self.idle_ttl_s, self.max_hold_s = number("idle_ttl_s", idle_ttl_s), number("max_hold_s", max_hold_s)
        self.release, self.shared_prefix = flag("release", release), flag("shared_prefix", shared_prefix)
        self.pause_frees_kv = flag("pause_frees_kv", pause_frees_kv)
        super().__init__(
            Rules(
                dt=self.dt, pause_at=self.pause_at, pause_to=self.pause_to, resume_to=self.resume_to,
                buffer=self.buffer, ageing_s=0.0, max_hold_s=self.max_hold_s, lease_s=self.idle_ttl_s,
                release=self.release, shared_prefix=self.shared_prefix, frees_kv=self.pause_frees_kv,
                origin_first=False, most_running=self.most_running,
            )
        )  # fmt: skip

    def relief(self, programs: list[Program], need: int, now: float) -> list[Program]:  # noqa: ARG002
        """Shortest first, acting programs before reasoning ones."""
        return acting_first("shortest", programs, need)

    def rank(self, program: Program) -> Rank:
        """Shortest first, then who has waited longest."""
        return (program.need, program.since)


GATE = ThunderAgentDynamo
