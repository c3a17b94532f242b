"""A program while a live driver runs it: what it said and heard, and the way of each of its coroutines.

Without a loop: shared by the asyncio driver (``live``) and by Locust's greenlets, which must do the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from bench.drivers.calls import Chunks, Request, Response
from bench.drivers.effects import LONGEST, ProgramError
from bench.drivers.live_records import Leg, LiveCall, LiveProgram, Trail
from bench.drivers.token_ids import Texts, TokenIds
from workloads.base import ProgramSpec
from workloads.session import CallEffect, Cancelled, Program


class Line:
    """A coroutine of a program while it runs: ``trail`` is what it went through; ``last``: thread and index
    of its last call, None before the first."""

    def __init__(self, trail: Trail | None) -> None:
        self.trail = trail
        self.ended = 0
        self.last: tuple[str, int] | None = None

    def passed(self, name: str = "", tool_s: float = 0.0, think_s: float = 0.0) -> None:
        """A call was answered, or a tool or a person is done."""
        self.trail = Trail(self.trail, Leg(name, tool_s, think_s))

    def joined(self, lines: Sequence[Line]) -> None:
        """It waited for ``lines``: its way goes on from the one that ended last."""
        self.trail = max(lines, key=lambda line: line.ended, default=self).trail


class Running:
    """A program that runs: its texts, and the coroutine that ended last."""

    def __init__(self, spec: ProgramSpec, scheduled: float, ids: TokenIds) -> None:
        self.spec = spec
        self.scheduled = scheduled
        self.texts = Texts(ids)
        self.abandoned = False
        self.threads = 1
        self.tool_s = self.think_s = 0.0
        self._called = False
        self._ended = 0
        self._last = Line(None)

    def ends(self, line: Line) -> None:
        """``line`` is over, later than all that were before."""
        self._ended += 1
        line.ended, self._last = self._ended, line

    def due(self, ready: float) -> float:
        """When a call that the program asks for at ``ready`` (s) is due: its first at its arrival."""
        first, self._called = not self._called, True
        return self.scheduled if first else ready

    def seconds(self, seconds: float) -> float:
        """A wait that it asks for. Raises ProgramError if that is no time."""
        if isinstance(seconds, int | float) and 0.0 <= seconds < LONGEST:
            return seconds
        raise self.fail(f"waits for {seconds!r} s; it must be a number of seconds from 0 to {LONGEST:.0f}")

    def cancel(self, program: Program) -> None:
        """Raise Cancelled in a coroutine of it, which must end. Raises ProgramError if it does not."""
        try:
            program.throw(Cancelled())
        except (Cancelled, StopIteration):
            return
        except BaseException as error:
            raise self.fail(f"raised {type(error).__name__}: {error}") from error
        program.close()
        raise self.fail("went on after it was cancelled: a cancelled task must end")

    def fail(self, what: str) -> ProgramError:
        """An error that names the program."""
        return ProgramError(f"program {self.spec.index} ({self.spec.kind}) {what}")

    def row(self, began: float, ended: float, calls: int) -> LiveProgram:
        """What is known of it when nothing of it runs any more; times in seconds since the run began."""
        spec, trail = self.spec, self._last.trail
        return LiveProgram(
            spec.index, spec.kind, self.scheduled, began, ended,
            "abandoned" if self.abandoned else "finished", calls,
            self.threads, self.tool_s, self.think_s, () if trail is None else trail.walk(),
        )  # fmt: skip


class Asking(NamedTuple):
    """A call that is being made; times in seconds since the run began."""

    effect: CallEffect
    request: Request
    program: int
    ready: float
    due: float

    @classmethod
    def of(cls, running: Running, effect: CallEffect, run: str, cache_salt: str, ready: float) -> Asking:
        """Named RUN.PROGRAM.THREAD.INDEX. Raises ProgramError if it quotes more of a reply than came."""
        program, due = running.spec.index, running.due(ready)
        try:
            prompt = running.texts.prompt(effect.prompt)
        except ValueError as error:
            raise running.fail(str(error)) from None
        name = f"{run}.{program}.{effect.thread.replace('.', '_')}.{effect.index}"
        caller = {"program_id": f"{run}.{program}", "thread_id": effect.thread}
        request = Request(name, prompt, effect.output_tokens, caller, cache_salt)
        return cls(effect, request, program, ready, due)

    def cut(self, given: float, ended: float) -> LiveCall:
        """Its row if it was given up."""
        effect, request = self.effect, self.request
        return LiveCall(
            self.program, effect.thread, effect.index, request.name, self.ready, self.due, given, math.nan,
            ended, len(request.prompt), (), "cut", effect.parents,
        )  # fmt: skip

    def answered(self, answer: Response, origin: float) -> LiveCall:
        """Its row; ``origin`` is the run's begin on the clock of ``answer``."""
        effect, request = self.effect, self.request
        sent, first, last = (at - origin for at in (answer.t_send, answer.t_first, answer.t_last))
        return LiveCall(
            self.program, effect.thread, effect.index, request.name, self.ready, self.due, sent, first, last,
            len(request.prompt), answer.tokens, parents=effect.parents,
            chunks=Chunks((at - origin, n) for at, n in answer.chunks),
        )  # fmt: skip
