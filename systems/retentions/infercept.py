"""InferCept: whatever wastes least memory while a call is interrupted (arXiv 2402.01869, ICML 2024).

Waste is KV that makes no progress, times how long (block-seconds here):

    preserve   T * c                                 it lies there while the tool runs
    discard    rebuild * c + rebuild * others        it is computed again, and everybody else waits for that
    swap       2 * move * (c + others)               out and in again, while everybody waits

with c the context's blocks, ``others`` those of the calls that run beside it, T how long the tool takes.
"""

from __future__ import annotations

from systems.knobs import at_least, flag, one_of
from systems.protocols import Away
from systems.retentions.absences import Absence
from systems.retentions.rebuild import TOKEN2_S, TOKEN_S, Rebuild
from systems.retentions.watching import Prices, Watching
from vocabulary import INF

ESTIMATES = ("elapsed", "mean")
MOST_TOOLS = 4096
"""Tools with a mean of their own; a tool that comes after that goes by the time elapsed."""


class InferCept(Watching):
    """Kept while preserving wastes less than the cheaper of discarding and swapping.

    ``estimate``: where T comes from. ``elapsed`` (default, the paper's where nobody knows): T is the time it
    has been away so far, so that KV is kept until it has wasted what the alternative would. ``mean``: the
    mean of the tool's times so far; kept until the thread is back, or not at all, and by ``elapsed`` before
    the tool's first return.
    ``swap_token_s``: seconds to move one token's KV to or from host memory; default infinity: no such tier.
    Where swapping is cheapest KV is left to the engine, whose host tier takes what is evicted.
    ``firm`` (default false): newcomers wait for what is kept (systems.protocols.Keeping); then ``mean``,
    too, keeps no longer than until it has wasted what the alternative would.
    ``token_s``, ``token2_s``: ``Rebuild``; default an 8B model on an A100.

    From the paper: the three wastes and the choice. Ours: it is asked once, at the interruption, with the
    batch as it was then; prompts are computed again in one go (the paper also has a form for chunks); swap
    has no budget per step.
    """

    name = "infercept"

    def __init__(
        self, *, estimate: str = "elapsed", swap_token_s: float = INF, firm: bool = False,
        token_s: float = TOKEN_S, token2_s: float = TOKEN2_S,
    ) -> None:  # fmt: skip
        super().__init__()
        self.estimate = one_of("estimate", estimate, ESTIMATES)
        self.firm = flag("firm", firm)
        self.swap_token_s = at_least("swap_token_s", swap_token_s, 0.0)
        self._rebuild = Rebuild(token_s, token2_s)
        self.token_s, self.token2_s = token_s, token2_s
        self._sums: dict[str, tuple[float, int]] = {}

    def verdict(self, absence: Absence, now: float) -> tuple[float, Prices]:
        """Until preserving has wasted as much as the alternative; both wastes (T: the mean, if known)."""
        blocks, other = absence.blocks, min(self._discard(absence), self._swap(absence))
        total, count = self._sums.get(absence.away.tool, (0.0, 0))
        if self.estimate == "mean" and count:
            preserve = total / count * blocks
            end = now + other / blocks if self.firm else INF
            return (end if preserve <= other else now), (preserve, other)
        return now + other / blocks, (total / count * blocks if count else other, other)

    def learn(self, absence: Absence, seconds: float, returned: bool) -> None:
        """One time more for the tool's mean."""
        tool = absence.away.tool
        if returned and (tool in self._sums or len(self._sums) < MOST_TOOLS):
            total, count = self._sums.get(tool, (0.0, 0))
            self._sums[tool] = (total + seconds, count + 1)

    def _beside(self, away: Away) -> int:
        """Blocks of the calls that run beside it."""
        view, _ = self.seen(away.engine)
        return 0 if view is None else view.kv_used

    def _discard(self, absence: Absence) -> float:
        away = absence.away
        return self._rebuild.seconds(away.tokens) * (absence.blocks + self._beside(away))

    def _swap(self, absence: Absence) -> float:
        away = absence.away
        return 2.0 * self.swap_token_s * max(away.tokens, 1) * (absence.blocks + self._beside(away))


RETENTION = InferCept
