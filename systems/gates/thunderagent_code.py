"""ThunderAgent as its published code does it (repository at 7ddc861), faults included.

For comparison only: docs/gates.md lists what differs from ``thunderagent``.
"""

from __future__ import annotations

from collections.abc import Sequence

from systems.gates.published import Known, Published
from systems.knobs import finite, flag, one_of
from vocabulary import BLOCK, INF, Call, EngineView, Usage

FIRST_RATIO, MOMENTUM = 5.0, 0.8
"""Characters per token, of all programs together, and how much of it a new sample leaves."""
DECAYS = ("none", "exponential")


class ThunderAgentCode(Published):
    """Per tick: resume what fits, then pause; see the module for why one would want it.

    ``dt`` (5 s), ``decay`` (none; exponential: 2^-seconds, at resuming only), ``release`` off: deaf to ends.
    ``chars_per_token`` (4, ours): the original estimates tokens from the length of the request's JSON, which
    a gate here does not see; it is taken to be so many characters per prompt token.

    Kept: marking a reasoning program does not lower the use, so a small overflow marks all of them; the size
    of the KV is what was known when the first call came; tokens are right only after a reply with usage, and
    only that ends a turn; calls are not counted; nobody who left is taken out of the queue; no ageing, no
    lease, ticks only, the longest hold fixed at 1 800 s; programs of a dead backend stay pinned to it.
    Not kept: programs without an id that share "default" (who a call belongs to is the host's business); the
    count of streamed tokens (no such hook). Other than there, a resume that lets nobody on is not reported.
    """

    name = "thunderagent-code"

    def __init__(
        self, *, dt: float = 5.0, decay: str = "none", release: bool = True, chars_per_token: float = 4.0
    ) -> None:
        super().__init__(finite("dt", dt, above=True), flag("release", release))
        self.decay = one_of("decay", decay, DECAYS)
        self.chars_per_token = finite("chars_per_token", chars_per_token, above=True)
        self._capacity: dict[int, float] = {}
        self._ratio, self._ratio_known = FIRST_RATIO, False
        self._usage: dict[int, int] = {}

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:
        """A program on a backend always passes; a new one if nobody waits and a backend has room."""
        self._look(engines)
        program = self._asked(call, int(call.prompt_tokens * self.chars_per_token / self._ratio), now)
        if not program.waiting and program.engine < 0:
            program.engine = self._engine_for_new(program, engines)
            if program.engine < 0:
                self._queued(program)
            else:
                self._note(program, now, "admit", "room")
        if program.waiting:
            self._hold(program, call, now)
        return not program.waiting

    def count(self, call: Call, tokens: int | None, now: float, prompt: int | None = None) -> None:  # noqa: ARG002
        """The reply's usage, if it has one."""
        if tokens is not None and call.program in self._programs:
            self._usage[call.program] = tokens

    def finish(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """Only a reply with usage makes a program act; any of several calls does."""
        program, tokens = self._programs.get(call.program), self._usage.pop(call.program, None)
        if program is None or tokens is None:
            return
        if call.prompt_tokens > 0:
            sample = self.chars_per_token
            mixed = MOMENTUM * self._ratio + (1 - MOMENTUM) * sample
            self._ratio, self._ratio_known = (mixed if self._ratio_known else sample), True
        self._turn_over(program, tokens, now)

    def abort(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """Nobody is told: the program reasons on, and a request in the queue stays there."""
        self._usage.pop(call.program, None)
        program = self._programs.get(call.program)
        if program is not None:
            program.held.pop(call.seq, None)

    def _look(self, engines: Sequence[EngineView]) -> None:
        """The one time that the size of the KV is read."""
        if not self._capacity and engines:
            for view in engines:
                known = view.alive and view.kv_total > 0
                self._capacity[view.id] = view.kv_total * BLOCK if known else INF

    def _size(self, engine: int) -> float:
        return self._capacity.get(engine, INF)

    def _resuming_weight(self, program: Known, now: float) -> int:
        if program.reasoning or self.decay == "none":
            return program.tokens
        return int(program.tokens * 2.0 ** -(now - program.acting_since))

    def _engine_for_new(self, program: Known, engines: Sequence[EngineView]) -> int:
        """The backend with least tokens of those with room; -1: none, or others wait."""
        if self._queue:
            return -1
        used = {view.id: sum(p.tokens for p in self._on(view.id)) for view in engines if view.alive}
        need = program.tokens + self.buffer
        fits = [engine for engine in used if self._load(engine) + need <= self._size(engine)]
        return min(fits, key=lambda engine: (used[engine], engine), default=-1)

    def _forced_to(self, program: Known, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """Where it was; a new one where there are fewest programs."""
        if program.origin >= 0:
            return program.origin
        count = {view.id: len(self._on(view.id)) for view in engines if view.alive}
        return min(count, key=lambda engine: (count[engine], engine), default=engines[0].id)


GATE = ThunderAgentCode
