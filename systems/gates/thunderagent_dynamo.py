"""ThunderAgent as NVIDIA Dynamo's port has it (its ThunderAgent router, read in September 2026)."""

from __future__ import annotations

from collections.abc import Sequence

from systems.gates.published import FORCED_S, Known, Published
from systems.knobs import finite, flag, whole
from vocabulary import BLOCK, INF, Call, EngineView, Usage, on_grid


class ThunderAgentDynamo(Published):
    """Above ``pause_at`` (.95) of an engine's KV pause down to ``pause_to`` (.80); resume up to ``resume_to``
    (.85), so that what resumes does not pause again at the next tick.

    Its own: sizes from usage, and from the prompt before there is any; the KV's size read each time; acting
    programs at their whole size, decay only where a new program is placed (least decayed load); requests in
    flight per engine as a second dimension, ``most_running`` (0, the default: no limit); ``idle_ttl_s``
    (600): forgotten if not heard of for so long; ``buffer`` 100; ``max_hold_s`` 1 800, then to the roomiest
    engine. A request that leaves the queue is rolled back; a program whose engine died is placed anew, and
    goes unplaced if nothing fits. As in the original: resume first, then pause; where acting programs do not
    suffice every reasoning one is marked; resumes are chosen by the sum of rooms; concurrent turns are one.

    Not kept: between .80 and .95 the port lowers its programs' priority in the engine, and raises it after a
    pause, which a gate cannot; streamed tokens count at the end; a shared prefix that counts once is a
    follow-up (pull request 15105) that ``thunderagent`` has. Read into it: a turn that ends without usage
    keeps the size of its prompt. Ours: ``release`` off, deaf to ends.
    """

    name = "thunderagent-dynamo"

    def __init__(
        self, *, dt: float = 5.0, pause_at: float = 0.95, pause_to: float = 0.80, resume_to: float = 0.85,
        most_running: int = 0, buffer: int = 100, idle_ttl_s: float = 600.0, max_hold_s: float = FORCED_S,
        release: bool = True,
    ) -> None:  # fmt: skip
        self.max_hold_s = finite("max_hold_s", max_hold_s, above=True)
        super().__init__(finite("dt", dt, above=True), flag("release", release), self.max_hold_s)
        self.pause_at = finite("pause_at", pause_at, above=True)
        self.pause_to = finite("pause_to", pause_to, above=True)
        self.resume_to = finite("resume_to", resume_to, above=True)
        if max(self.pause_to, self.resume_to) > self.pause_at:
            raise ValueError(
                f"pause_to and resume_to must be at most pause_at, got {pause_to}, {resume_to} and {pause_at}"
            )
        self.most_running, self.buffer = whole("most_running", most_running), whole("buffer", buffer)
        self.idle_ttl_s = finite("idle_ttl_s", idle_ttl_s)
        self._sizes: dict[int, int] = {}
        self._usage: dict[int, int] = {}

    def request(self, call: Call, engines: Sequence[EngineView], now: float) -> bool:
        """A placed program passes; a new one if nobody waits and an engine has room."""
        self._look(engines)
        known = self._programs.get(call.program)
        before = (known.tokens, known.reasoning) if known else (0, True)
        program = self._asked(call, call.prompt_tokens, now)
        if not program.waiting and program.engine not in self._sizes and self._sizes:
            lost = program.engine >= 0
            program.engine = -1 if known is None and self._queue else self._engine_for(program, now)
            if program.engine >= 0:
                self._note(program, now, "move" if lost else "admit", "engine gone" if lost else "room")
            elif known is None:
                self._queued(program)
        if program.waiting:
            self._hold(program, call, now, before)
        return not program.waiting

    def count(self, call: Call, tokens: int | None, now: float, prompt: int | None = None) -> None:  # noqa: ARG002
        """The reply's usage, if it has one."""
        if tokens is not None and call.program in self._programs:
            self._usage[call.program] = tokens

    def finish(self, call: Call, usage: Usage, now: float) -> None:  # noqa: ARG002
        """The turn is over, with usage or without."""
        tokens = self._usage.pop(call.program, None)
        program = self._programs.get(call.program)
        if program is not None:
            self._turn_over(program, program.tokens if tokens is None else tokens, now)

    def abort(self, call: Call, usage: Usage, now: float) -> None:
        """As ``finish``; a held request is rolled back, and with its first one a program was never here."""
        program = self._programs.get(call.program)
        if program is None or call.seq not in program.held:
            self.finish(call, usage, now)
            return
        program.tokens, program.reasoning = program.held.pop(call.seq)
        program.steps -= 1
        if program.steps == 0:
            self._drop(program, now, "release", "gave up")

    def _look(self, engines: Sequence[EngineView]) -> None:
        """Live engines that tell how big they are."""
        self._sizes = {v.id: v.kv_total * BLOCK for v in engines if v.alive and v.kv_total > 0}

    def _size(self, engine: int) -> float:
        return self._sizes.get(engine, INF)

    def _running(self, engine: int) -> int:
        return sum(p.reasoning for p in self._on(engine))

    def _slots(self, engine: int, share: float) -> float:
        return int(self.most_running * share) - self._running(engine) if self.most_running else INF

    def _decayed(self, engine: int, now: float) -> float:
        """Acting programs at 2^-seconds of their size."""
        return sum(
            p.tokens * (1.0 if p.reasoning else 2.0 ** -(now - p.acting_since)) + self.buffer
            for p in self._on(engine)
        )

    def _engine_for(self, program: Known, now: float) -> int:
        """Least decayed load of those with room for all of it and a free slot; -1: none."""
        need = program.tokens + self.buffer
        fits = [e for e in self._sizes if self._load(e) + need <= self._size(e) and self._slots(e, 1.0) >= 1]
        return min(fits, key=lambda e: (self._decayed(e, now), e), default=-1)

    def _forced_to(self, program: Known, engines: Sequence[EngineView], now: float) -> int:  # noqa: ARG002
        """Most room by decayed loads."""
        room = {e: self._size(e) - self._decayed(e, now) for e in self._sizes}
        return max(room, key=lambda e: (room[e], -e), default=-1)

    def _crowded(self, engine: int, share: float) -> bool:
        return self.most_running > 0 and self._running(engine) > self.most_running * share

    def _expire(self, now: float) -> None:
        """Programs that act, paused or not, and have for so long."""
        for program in list(self._programs.values()) if self.idle_ttl_s > 0 else ():
            idle = not program.reasoning and not program.held
            if idle and now >= on_grid(program.acting_since + self.idle_ttl_s):
                self._drop(program, now, "expire", "idle")


GATE = ThunderAgentDynamo
