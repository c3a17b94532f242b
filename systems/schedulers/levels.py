"""Queues Q1..QK with quanta, demotion and anti-starvation: what the mlfq, plas and atlas families share.

Autellix, Algorithm 1. Everything the paper leaves open is a knob here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from systems.knobs import UNITS, at_least, flag, increasing, one_of, positives
from systems.process_table import ProcessTable
from systems.schedulers.accounts import FIRST, Accounts
from systems.schedulers.starvation import Starvation
from vocabulary import INF, Call, Slot, Snapshot, Usage

DEFAULT_BOUNDS: dict[str, tuple[float, ...]] = {
    "step": tuple(64.0 * 4**i for i in range(7)),
    "s": tuple(1.0 * 4**i for i in range(7)),
    "token": tuple(256.0 * 4**i for i in range(7)),
}
DEFAULT_BETA = 8.0
_slot = partial(tuple.__new__, Slot)  # a third of the time of Slot(...): one per arrival and demotion
RESETS = ("none", "call", "program")


def widths(bounds: Sequence[float]) -> tuple[float, ...]:
    """The width of each queue's range of service; the last one is infinite."""
    lows = (0.0, *bounds)
    return (*(high - low if high < INF else INF for low, high in zip(lows, bounds, strict=False)), INF)


class Levels(Accounts):
    """K queues by attained service, first come first served inside each.

    bounds: the K-1 limits between the queues' ranges of service [lo, hi), in
        ``unit``, increasing; Q1 begins at 0, QK never ends. Default in steps:
        64 * 4**i for i = 0..6 (K = 8), from a quarter of a chat call (about
        280 steps) over whole chat programs (mean 1 850) and tree searches
        (12 000) to coding sessions (260 000). Bounds below real programs put
        all of them into the last queue, which is FCFS again. The defaults for
        "s" and "token" span about the same programs: a step of an 8B model on
        an A100 takes 12 to 45 ms, and chat calls get about 2, tree searches 7
        tokens per step, prefills included.
    quanta: service a call may receive in each of the K queues before it is
        demoted. Default: the width of the queue's range, infinite for the
        last. A shorter one inverts the policy: running calls sink below the
        queue where their program's service belongs.
    unit: "step", "s" or "token".
    beta: wait over execution at which a waiting call is promoted to the tail
        of Q1; see ``starvation``. 0 makes every call starve always, which is
        FCFS; infinity never promotes. Unpublished. Default 8: as in a public
        fork for vLLM, and in the upper part of what the paper's loaded engines
        show on average (4 to 10, its Fig. 5), so that promotion is for those
        worse off than most; smaller values buy tail latency with mean latency.
    promote_reset: "call" (the paper: the call's counters start again, the
        program's stay, so its other calls are promoted too), "none", or
        "program" (the row's wait and execution start again as well; without a
        shared table the next snapshot brings them back).
    promote_refill: whether a promoted call gets Q1's quantum, or keeps what
        was left of the one it had. Default true: with the old rest it could
        run in Q1 for as long as a call of its old queue.
    max_promotions: per call, over its whole life. Default 1: the program's
        ratio survives the promotion, so with more a call would be promoted
        again after each demotion and Q1 would turn into a round robin that
        pays a prefill per turn. Infinity is Algorithm 1 to the letter.
    table: see ``Accounts``.

    Past the last queue there is no demotion: an expired call goes to QK's
    tail with a new quantum. Waiting calls are not moved when their program's
    service grows (the paper's pseudo-code). Limits: beta = 0, K = 1 (no bounds;
    its quantum is not used), and an infinite first quantum together with an
    infinite first bound (for mlfq: with any) give FCFS's slots exactly.

    Raises ValueError naming the knob that is wrong.
    """

    name = "levels"
    by_service = True
    """Whether a call enters by its program's service; otherwise always Q1."""

    def __init__(
        self,
        *,
        bounds: Sequence[float] | None = None,
        quanta: Sequence[float] | None = None,
        unit: str = "step",
        beta: float = DEFAULT_BETA,
        promote_reset: str = "call",
        promote_refill: bool = True,
        max_promotions: float = 1,
        table: ProcessTable | None = None,
    ) -> None:
        super().__init__(table)
        self.unit = one_of("unit", unit, UNITS)
        self.bounds = increasing("bounds", DEFAULT_BOUNDS[unit] if bounds is None else bounds)
        self.quanta = widths(self.bounds) if quanta is None else positives("quanta", quanta)
        self.beta = at_least("beta", beta, 0.0)
        self.promote_reset = one_of("promote_reset", promote_reset, RESETS)
        self.promote_refill = flag("promote_refill", promote_refill)
        self.max_promotions = at_least("max_promotions", max_promotions, 0)
        self._check()
        self._flat = self._never_leaves_first()
        self._starves = not self._flat and self.beta < INF and self.max_promotions > 0
        self.tracks_wait = self._starves
        self._edges = self.bounds if self.by_service else ()
        self._tail = 0.0
        self._slots: dict[int, Slot] = {}
        self._granted: dict[int, float] = {}
        self._starvation = Starvation(self.table, self.beta, self.promote_reset, self.max_promotions)
        self._waiters = self._starvation.waiters

    @property
    def promotions(self) -> int:
        """Promotions so far."""
        return self._starvation.promotions

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """The tail of the queue whose range holds the program's service (mlfq: of Q1)."""
        service = self._admit(call, snap, now)
        if self._flat:
            return FIRST
        level = self._enters(call, service)
        if level and self._starves:
            self._starvation.wait(call, None, now)
        return self._append(call, level)

    def start(self, call: Call, now: float) -> None:  # noqa: ARG002
        """A running call does not starve."""
        if call.seq in self._waiters:
            self._starvation.run(call)

    def stop(self, call: Call, usage: Usage, now: float) -> None:
        """Preempted: it waits where it was, and may starve there."""
        if self._starves and self._slots[call.seq].level:
            self._starvation.wait(call, usage, now)

    def expire(self, call: Call, served: float, now: float) -> Slot:  # noqa: ARG002
        """One queue down, at the tail, with that queue's quantum."""
        if self._flat:
            return FIRST
        if not self.promote_refill:
            self._granted[call.seq] = served
        level = self._slots[call.seq][0]
        return self._append(call, level + 1 if level < len(self.bounds) else level)

    def next_due(self) -> float:
        """When the first waiting call starves; seconds, INF if never."""
        return self._starvation.next_due() if self._waiters else INF

    def due(self, now: float) -> list[tuple[Call, Slot]]:
        """Starving calls go to the tail of Q1, in the order of their queues."""
        starving = self._starvation.pop(now)
        if len(starving) > 1:
            starving.sort(key=lambda call: self._slots[call.seq])
        return [(call, self._promote(call)) for call in starving]

    def finish(self, call: Call, usage: Usage, now: float) -> None:
        """Leave the queues, then charge: a call that left must not come due by its own charge."""
        seq = call.seq
        if not self._flat:
            del self._slots[seq]
            if seq in self._waiters:
                self._starvation.leave(call)
            if not self.promote_refill:
                self._granted.pop(seq, None)
        self.table.charge(call.program, self._services.pop(seq), usage, now)

    def end(self, program: int, now: float) -> None:
        """Forget the program's row and due times."""
        self._starvation.forget(program)
        super().end(program, now)

    def _enters(self, call: Call, service: float) -> int:  # noqa: ARG002
        """The queue of a new call."""
        return bisect_right(self._edges, service)

    def _append(self, call: Call, level: int) -> Slot:
        self._tail = tail = self._tail + 1.0
        slot: Slot = _slot((level, tail, self.quanta[level]))
        self._slots[call.seq] = slot
        return slot

    def _promote(self, call: Call) -> Slot:
        quantum = self._slots[call.seq].quantum
        slot = self._append(call, 0)
        if self.promote_refill:
            return slot
        served = self._starvation.served(call)
        left = quantum - (served - self._granted.get(call.seq, 0.0))
        self._granted[call.seq] = served
        if left > 0.0:
            slot = self._slots[call.seq] = slot._replace(quantum=left)
        return slot

    def _check(self) -> None:
        queues = len(self.bounds) + 1
        if len(self.quanta) != queues:
            raise ValueError(
                f"quanta must have one entry per queue: {len(self.bounds)} bounds make {queues} queues, "
                f"got {len(self.quanta)} quanta"
            )
        if self.by_service and self.table.rule != self.rule:
            raise ValueError(
                f"{self.name} needs a process table with rule {self.rule!r}, got {self.table.rule!r}"
            )

    def _never_leaves_first(self) -> bool:
        if self.beta == 0.0 or not self.bounds:
            return True
        enters_first = not self.by_service or self.bounds[0] == INF
        return enters_first and self.quanta[0] == INF
