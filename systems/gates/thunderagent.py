"""ThunderAgent (arXiv 2602.13692), as the paper says it and without the faults of its code.

Programs, not calls, are let in, paused and resumed, so that those that run keep their KV between calls.
"""

from __future__ import annotations

from systems.gates.books import Rules
from systems.gates.capacity import CapacityGate
from systems.gates.ledger import Program
from systems.gates.line import Rank
from systems.gates.victims import ORDERS, acting_first, chosen
from systems.knobs import finite, flag, one_of, whole
from systems.routers.hashing import hashed

DECAYS = ("none", "exponential", "linear")
DECAY_ON = ("both", "restore")
RESTORES = ("shortest", "longest", "arrival", "random")


class ThunderAgent(CapacityGate):
    """Pause while programs weigh more than ``lambda_max`` of an engine's KV, resume up to ``lambda_min``.

    The paper's: ``dt`` (s between checks), ``lambda_max``, ``lambda_min``; ``decay``: what a program weighs
    that has acted for t = seconds/``tau_s``: exponential ``base``^-t, linear 1 - t/``base``, none 1, at
    pausing and restoring (``decay_on`` both) or at restoring alone (restore); ``victims`` (who pauses first)
    and ``restore`` (who goes on first): shortest first, each by itself;
    ``phase_priority``: who acts pauses before who reasons, and who returns goes before who is new.
    Its code's: ``buffer`` (100 tokens per program), ``max_hold_s`` (1 800: then let in against the rule; the
    gateway's own limit is another), ``origin_first`` off (most room).

    Ours: other orders of ``victims`` (``systems.gates.victims``; the prefill of c tokens costs
    c^``cost_power``: 1.2, the median of the latency tables, docs/gates.md, where the paper has about 2) and
    of ``restore`` (longest, arrival, random; ``salt`` for both random ones); ``origin_first`` (resume where
    it ran, if it fits there), ``global_queue`` off (there or nowhere); ``ageing_s`` (300: who is held so long
    goes first, and an engine is kept clear for it; ``grace_s``: for so long, too, after its client gave up,
    10, as clients back off for up to 8 s before they ask again); ``lease_s`` (600: forgotten, if not heard of
    for so long; until then the wait of a client that gave up and asks again goes on; 0 switches each of the
    four off); ``release`` off (deaf to ends of programs); ``event_driven`` (resume when calls and programs
    end, too); ``shared_prefix`` (count what prompts have in common once); ``pause_frees_kv`` (the engine
    drops what a paused program left; else it only stops sending); ``reserve`` (a call in flight is expected
    to get a reply as long as its program's were on average, at least so many tokens). Acting victims are
    spared again where the reasoning ones that had to follow them free enough without them.
    """

    name = "thunderagent"

    def __init__(
        self, *, dt: float = 5.0, lambda_max: float = 1.0, lambda_min: float = 1.0,
        decay: str = "exponential", base: float = 2.0, tau_s: float = 1.0, decay_on: str = "both",
        victims: str = "shortest", restore: str = "shortest", cost_power: float = 1.2, salt: int = 0,
        phase_priority: bool = True, origin_first: bool = True, global_queue: bool = True,
        ageing_s: float = 300.0, grace_s: float = 10.0, max_hold_s: float = 1800.0, lease_s: float = 600.0,
        release: bool = True, event_driven: bool = False, shared_prefix: bool = False,
        pause_frees_kv: bool = False, buffer: int = 100, reserve: int = 0,
    ) -> None:  # fmt: skip
        self.dt = finite("dt", dt, above=True)
        self.lambda_max = finite("lambda_max", lambda_max, above=True)
        self.lambda_min = finite("lambda_min", lambda_min, above=True)
        self.decay = one_of("decay", decay, DECAYS)
        self.base = finite("base", base, least=1.0, above=True)
        self.tau_s = finite("tau_s", tau_s, above=True)
        self.decay_on = one_of("decay_on", decay_on, DECAY_ON)
        self.victims = one_of("victims", victims, ORDERS)
        self.restore = one_of("restore", restore, RESTORES)
        self.cost_power = finite("cost_power", cost_power)
        self.salt = whole("salt", salt)
        self.phase_priority = flag("phase_priority", phase_priority)
        self.origin_first = flag("origin_first", origin_first)
        self.global_queue = flag("global_queue", global_queue)
        self.ageing_s, self.max_hold_s = finite("ageing_s", ageing_s), finite("max_hold_s", max_hold_s)
        self.grace_s = finite("grace_s", grace_s)
        self.lease_s, self.release = finite("lease_s", lease_s), flag("release", release)
        self.event_driven = flag("event_driven", event_driven)
        self.shared_prefix = flag("shared_prefix", shared_prefix)
        self.pause_frees_kv = flag("pause_frees_kv", pause_frees_kv)
        self.buffer, self.reserve = whole("buffer", buffer), whole("reserve", reserve)
        super().__init__(self._as_rules())

    def _as_rules(self) -> Rules:
        return Rules(
            dt=self.dt, pause_at=self.lambda_max, pause_to=self.lambda_max, resume_to=self.lambda_min,
            buffer=self.buffer, reserve=self.reserve, ageing_s=self.ageing_s, grace_s=self.grace_s,
            max_hold_s=self.max_hold_s, lease_s=self.lease_s, release=self.release,
            event_driven=self.event_driven, shared_prefix=self.shared_prefix, frees_kv=self.pause_frees_kv,
            origin_first=self.origin_first, global_queue=self.global_queue,
            phase_priority=self.phase_priority,
        )  # fmt: skip

    def relief(self, programs: list[Program], need: int, now: float) -> list[Program]:  # noqa: ARG002
        """Acting programs in the order of ``victims``, then reasoning ones."""
        if not self.phase_priority:
            return chosen(self.victims, programs, need, self.cost_power, self.salt)
        return acting_first(self.victims, programs, need, self.cost_power, self.salt)

    def rank(self, program: Program) -> Rank:
        """As ``restore`` says, then who has waited longest."""
        if self.restore == "arrival":
            return (program.idle_since,)
        if self.restore == "random":
            return (float(hashed(self.salt, program.id)),)
        return (program.need if self.restore == "shortest" else -program.need, program.idle_since)

    def share(self, acting_s: float) -> float:
        """The decay."""
        t = acting_s / self.tau_s
        if self.decay == "exponential":
            return float(self.base**-t)
        return 1.0 if self.decay == "none" else max(0.0, 1.0 - t / self.base)

    def _before_pausing(self, now: float) -> None:
        if self.decay != "none" or self.shared_prefix:
            self._reweigh(now, decayed=self.decay_on == "both")

    def _before_resuming(self, now: float) -> None:
        if self.decay != "none" and self.decay_on == "restore":
            self._reweigh(now)


GATE = ThunderAgent
