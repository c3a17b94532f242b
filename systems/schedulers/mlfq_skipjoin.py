"""Skip-join multi-level feedback queue over calls: FastServe (arXiv 2305.05920).

The length of the reply is unknown but the prompt's is not. A call whose
prefill alone would use up the first quanta skips those queues instead of
being demoted through them. From FastServe: that rule, quanta that double from
one iteration on, promotion of calls that wait too long. Ours: prefill is
counted in full (FastServe knows no prefix cache, and a policy does not see
what an engine has cached), its cost is a rate instead of a profile, the
number of queues, and promotion by the ratio of wait to execution as for the
other policies here (FastServe: a fixed waiting time).
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.knobs import UNITS, at_least, one_of
from systems.process_table import ProcessTable
from systems.schedulers.levels import DEFAULT_BETA, Levels
from vocabulary import Call

FIRST_QUANTUM = {"step": 1.0, "s": 2.0**-5, "token": 2048.0}
"""About one iteration: a step, its 31 ms (an 8B model on an A100 takes 12 to 45), a full chunk of prefill."""
PREFILL_RATES = {"step": 2048.0, "s": 16384.0, "token": 1.0}
"""Prompt tokens per unit of service: a full chunk a step; an 8B model on an A100 (2 048 tokens in 125 ms)."""
QUEUES = 12


class MlfqSkipJoin(Levels):
    """A call enters the first queue whose quantum covers its prefill; knobs of ``Levels``, and:

    bounds: as in ``Levels``; here only their number and distances matter, which
        are the quanta. Default: 12 queues with quanta 1, 2, 4 .. 1 024 steps and
        an infinite one, so that the last one is for calls of over 2 047 steps;
        for "s" and "token" the first quantum is 1/32 s and 2 048 tokens.
    prefill_rate: prompt tokens per unit of service, above 0. Default by unit:
        2 048 a step (the default chunk), 16 384 a second, 1 a token.

    A prompt that no quantum covers enters the last queue.
    """

    name = "mlfq-skipjoin"
    by_service = False

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
        prefill_rate: float | None = None,
        table: ProcessTable | None = None,
    ) -> None:
        one_of("unit", unit, UNITS)
        if bounds is None:
            bounds = [FIRST_QUANTUM[unit] * (2**i - 1) for i in range(1, QUEUES)]
        super().__init__(
            bounds=bounds, quanta=quanta, unit=unit, beta=beta, promote_reset=promote_reset,
            promote_refill=promote_refill, max_promotions=max_promotions, table=table,
        )  # fmt: skip
        rate = PREFILL_RATES[unit] if prefill_rate is None else prefill_rate
        self.prefill_rate = at_least("prefill_rate", rate, 0.0)
        if not self.prefill_rate:
            raise ValueError("prefill_rate must be greater than 0, got 0")

    def _enters(self, call: Call, service: float) -> int:  # noqa: ARG002
        """The first queue whose quantum the prefill does not exceed."""
        prefill = call.prompt_tokens / self.prefill_rate
        covering = (level for level, quantum in enumerate(self.quanta) if quantum >= prefill)
        return next(covering, len(self.bounds))


SCHEDULER = MlfqSkipJoin
