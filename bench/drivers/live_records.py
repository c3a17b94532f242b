"""What the live driver saw, from the client's side. Times in seconds since the run began."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.drivers.audit import Audit
from bench.drivers.calls import Chunk
from vocabulary import Decision


class Leg(NamedTuple):
    """A piece of a program's way: a call (its name), or seconds of a tool or a person."""

    name: str = ""
    tool_s: float = 0.0
    think_s: float = 0.0


class Trail(NamedTuple):
    """The way of a coroutine so far, the last leg on top; ``before`` is shared with those forked from it."""

    before: Trail | None
    leg: Leg

    def walk(self) -> tuple[Leg, ...]:
        """All legs, the last one first."""
        found: list[Leg] = []
        at: Trail | None = self
        while at is not None:
            found.append(at.leg)
            at = at.before
        return tuple(found)


@dataclass(frozen=True, slots=True)
class LiveCall:
    """One call. ``t_sched``: when it was due (a program's first call: its scheduled arrival; later ones:
    when the program asked, ``t_ready``); ``t_first``, ``t_last``: first and last bytes of the reply.
    ``outcome``: finished, or cut (a timeout, a cancelled task, a client that left): then ``t_send`` is when
    it was handed to the client, ``t_first`` NaN, ``t_last`` when it was given up, and there are no tokens.
    ``parents``: as in ``vocabulary.Call``. ``chunks``: of a client
    that streams; then ``t_first`` and ``t_last`` are the first one's and the last one's."""

    program: int
    thread: str
    index: int
    name: str
    t_ready: float
    t_sched: float
    t_send: float
    t_first: float
    t_last: float
    prompt_tokens: int
    tokens: tuple[int, ...]
    outcome: str = "finished"
    parents: tuple[tuple[str, int], ...] = ()
    chunks: Sequence[Chunk] = ()

    @property
    def answered(self) -> bool:
        """Whether its reply is here."""
        return self.outcome == "finished"


@dataclass(frozen=True, slots=True)
class LiveProgram:
    """One program; its latency is ``t_end - t_sched``. ``outcome``: finished or abandoned.
    ``tool_s``, ``think_s``: over all its threads; ``path``: its critical path as it really ran (at a
    join, the branch that ended last), the last leg first."""

    program: int
    kind: str
    t_sched: float
    t_start: float
    t_end: float
    outcome: str
    calls: int
    threads: int = 1
    tool_s: float = 0.0
    think_s: float = 0.0
    path: tuple[Leg, ...] = ()


@dataclass(frozen=True)
class LiveRun:
    """A run that is over. ``wall``: Unix time at which it began, ``origin``: the same on
    ``time.monotonic``; ``took`` in seconds. ``environment``: totals of the tools' sandboxes, where there
    are any; ``decisions``: what became of them when."""

    name: str
    wall: float
    took: float
    programs: list[LiveProgram]
    calls: list[LiveCall]
    audit: Audit
    origin: float = 0.0
    environment: dict[str, float] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def said(self) -> dict[str, str]:
        """A hash of what every answered call was answered, by PROGRAM.THREAD.INDEX."""
        return {
            call.name.removeprefix(f"{self.name}."): hashlib.sha256(repr(call.tokens).encode()).hexdigest()[
                :16
            ]
            for call in self.calls
            if call.answered
        }
