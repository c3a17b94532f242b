"""Continuum as its paper has it (arXiv 2511.02230): the time to live that pays best, per tool.

Chosen among the tool's observed durations d:    P(finish <= d) * B - d * cost
with             B = mean queue delay * memoryfulness + seconds to compute the context again.
"""

from __future__ import annotations

from bisect import insort
from collections import deque

from systems.knobs import at_least, flag
from systems.protocols import Away
from systems.retentions.absences import Absence
from systems.retentions.firm import finite
from systems.retentions.rebuild import TOKEN2_S, TOKEN_S, Rebuild
from systems.retentions.watching import Prices, Watching
from vocabulary import EngineView

MOST_TOOLS = 1024
"""Tools with durations of their own; a tool that comes after that stays unknown."""
WINDOW = 1024
"""Durations remembered per tool: the newest."""
MOST_PROGRAMS = 2**16
"""Programs whose calls are counted at a time; one that comes after that is not."""
ENDED = 8
"""Programs that must have ended before memoryfulness is taken from them; until then it is 1."""


class _Durations:
    """The last ``WINDOW`` durations of one tool, in order of time and in order of size."""

    __slots__ = ("_newest", "rising")

    def __init__(self) -> None:
        self._newest: deque[float] = deque()
        self.rising: list[float] = []

    def add(self, seconds: float) -> None:
        """The oldest makes room."""
        if len(self._newest) == WINDOW:
            self.rising.remove(self._newest.popleft())
        self._newest.append(seconds)
        insort(self.rising, seconds)

    def best(self, benefit: float, cost: float) -> float:
        """The duration that maximises P(finish <= d) * ``benefit`` - d * ``cost``; 0 where none pays."""
        n, best, found = len(self.rising), 0.0, 0.0
        for i, seconds in enumerate(self.rising, 1):
            gain = i / n * benefit - seconds * cost
            if gain > best:
                best, found = gain, seconds
        return found


class _Memory:
    """How much the calls a program has made say about how many are left: minus their correlation.

    1 where all programs make the same number of calls, 0 where that number is geometric (memoryless).
    """

    __slots__ = ("_sums", "ended")

    def __init__(self) -> None:
        self.ended = 0
        self._sums = [0.0] * 6

    def add(self, calls: int) -> None:
        """A program has ended after so many calls: the pairs (k made, calls - k left) for every k."""
        n = float(calls)
        made, made2 = n * (n + 1) / 2, n * (n + 1) * (2 * n + 1) / 6
        left, left2 = n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6
        self.ended += 1
        for i, value in enumerate((n, made, left, made2, left2, n * made - made2)):
            self._sums[i] += value

    @property
    def fullness(self) -> float:
        """Between 0 and 1; 1 while too few have ended."""
        n, made, left, made2, left2, both = self._sums
        spread = (n * made2 - made * made) * (n * left2 - left * left)
        if self.ended < ENDED or spread <= 0.0:
            return 1.0
        return min(1.0, max(0.0, (made * left - n * both) / float(spread**0.5)))


class ContinuumTtl(Watching):
    """Kept for the time to live that pays best for its tool; knobs:

    ``least``: a tool with fewer observed durations gets ``cold_s`` instead; default 100 and 2.0 s (the
        paper's). ``token_s``, ``token2_s``: ``Rebuild``; default an 8B model on an A100.
    ``cost``: what a second of keeping costs, per share of the engine's KV that is kept; default 1.
    ``firm`` (default): newcomers wait until then (systems.protocols.Keeping).

    What the paper leaves to the reader, and we assume:
    * cost: keeping a share of an engine's KV for a second takes that share of a second from everybody
      else, so that the cost of a second is the context's blocks over the engine's.
    * mean queue delay: the prompt tokens that wait at an engine, computed one after the other (``token_s``);
      its mean over all looks so far.
    * memoryfulness: how much the number of calls made says about how many are left; minus the correlation
      over the programs that have ended (8 at least, 1 until then).
    * P is the share among durations that ended with a return; who never came back is not counted, and
      neither is who is still away (that is what ``survival`` does differently).
    * a tool's newest 1 024 durations count; given up first is whose time is up first.
    """

    name = "continuum-ttl"

    def __init__(
        self, *, least: float = 100, cold_s: float = 2.0, cost: float = 1.0, firm: bool = True,
        token_s: float = TOKEN_S, token2_s: float = TOKEN2_S,
    ) -> None:  # fmt: skip
        super().__init__()
        self.least = at_least("least", least, 1.0)
        self.firm = flag("firm", firm)
        self.cold_s = finite("cold_s", cold_s, self.firm)
        self.cost = at_least("cost", cost, 0.0)
        self._rebuild = Rebuild(token_s, token2_s)
        self.token_s, self.token2_s = token_s, token2_s
        self._tools: dict[str, _Durations] = {}
        self._calls: dict[int, int] = {}
        self._memory = _Memory()
        self._delay, self._delays = 0.0, 0

    def look(self, view: EngineView, waiting_tokens: int, now: float) -> None:
        """One more for the mean queue delay."""
        super().look(view, waiting_tokens, now)
        self._delays += 1
        self._delay += (waiting_tokens * self.token_s - self._delay) / self._delays

    def idle(self, away: Away, now: float) -> float:
        """One more call of its program has ended."""
        if away.program in self._calls or len(self._calls) < MOST_PROGRAMS:
            self._calls[away.program] = self._calls.get(away.program, 0) + 1
        return super().idle(away, now)

    def verdict(self, absence: Absence, now: float) -> tuple[float, Prices]:
        """The time to live from now; ttl * cost and B, in block-seconds of the engine."""
        away, (view, _) = absence.away, self.seen(absence.away.engine)
        capacity = absence.blocks if view is None else view.kv_total
        cost = self.cost * absence.blocks / capacity
        benefit = self._delay * self._memory.fullness + self._rebuild.seconds(away.tokens)
        known = self._tools.get(away.tool)
        if known is None or len(known.rising) < self.least:
            seconds = self.cold_s
        else:
            seconds = known.best(benefit, cost)
        return now + seconds, (seconds * cost * capacity, benefit * capacity)

    def learn(self, absence: Absence, seconds: float, returned: bool) -> None:
        """One duration more of its tool."""
        tool = absence.away.tool
        if returned and (tool in self._tools or len(self._tools) < MOST_TOOLS):
            self._tools.setdefault(tool, _Durations()).add(seconds)

    def end(self, program: int, now: float) -> None:
        """It has made one call more than it was away for."""
        super().end(program, now)
        if program in self._calls:
            self._memory.add(self._calls.pop(program) + 1)


RETENTION = ContinuumTtl
