"""Runs a script again as a program.

Each call is issued when its coroutine gets there: after the calls, tools, waits
and joins before it. Everything is as recorded but the times, which are the
engine's. What a program would have *decided* on another outcome is not in a
recording: a replayed timeout that fires goes on with what came after it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from vocabulary import Segment
from workloads.base import ProgramSpec
from workloads.keys import key_of, mix
from workloads.script import (
    AbandonOp,
    CallOp,
    CancelOp,
    JoinOp,
    Op,
    Script,
    SpawnOp,
    ThinkOp,
    TimeoutOp,
    ToolOp,
    leading,
)
from workloads.session import Cancelled, JoinEffect, Program, Session, Task, TimedOut


def replay_spec(index: int, kind: str, script: Script, arrival: float | None, copy: int = 0) -> ProgramSpec:
    """The program that replays ``script``.

    ``copy`` 0 has the recorded segment ids; every other number has ids of its
    own, so that copies of a program share no prefix with it.
    """
    key = key_of("replay", index, copy)
    return ProgramSpec(index, kind, key, partial(replay, script, copy), arrival)


def replay(script: Script, copy: int, session: Session) -> Program:
    """The coroutine of ``script`` for ``session``'s program."""
    return _Replay(session, copy).run(script)


class _Replay:
    def __init__(self, root: Session, copy: int) -> None:
        self.root = root
        self.copy = copy
        self.threads: dict[str, Session] = {root.thread: root}
        self.done: dict[str, CallOp] = {}  # the call whose reply ends the thread's context
        self.tasks: dict[int, Task] = {}

    async def run(self, script: Script) -> None:
        try:
            for op in script.ops:
                await self.step(op)
        except Cancelled:
            if script.cleanup is None:
                raise
            for op in script.cleanup:
                await self.step(op)

    async def step(self, op: Op) -> None:
        s = self.root
        match op:
            case CallOp():
                await self.call(op)
            case ToolOp(name, work_s):
                await s.tool(name, work_s)
            case ThinkOp(seconds):
                await s.think(seconds)
            case JoinOp():
                await JoinEffect([self.run(script) for script in op.scripts])
            case SpawnOp():
                self.tasks[op.task] = await s.spawn(self.run(op.script))
            case CancelOp():
                if op.task in self.tasks:
                    await s.cancel(self.tasks[op.task])
            case TimeoutOp():
                with suppress(TimedOut):
                    await s.timeout(op.seconds, self.run(op.script))
            case AbandonOp():
                await s.abandon()

    async def call(self, op: CallOp) -> None:
        root = self.root
        s = self.threads.get(op.thread)
        if s is None:
            s = self.threads[op.thread] = Session(root.program, key_of(root.key, op.thread), op.thread)
        self.prompt(op, s)
        s.calls, s.parents = op.index, op.parents
        self.done.pop(op.thread, None)
        await s.call(output=op.output_tokens, model=op.model, output_id=self.id(op.output_id))
        self.done[op.thread] = op

    def prompt(self, op: CallOp, s: Session) -> None:
        """Set the thread's context; one that goes on from its own last call is not rebuilt."""
        base = op.base
        if base is None or self.done.get(op.thread) is not base:
            s.edit(self.own(op.prompt()))
            return
        if op.keep != base.total:
            s.edit(leading(s.context, op.keep))
        for segment in self.own(op.new):
            s.add(segment)

    def own(self, segments: list[Segment] | tuple[Segment, ...]) -> list[Segment]:
        if not self.copy:
            return list(segments)
        return [(self.id(segment), length) for segment, length in segments]

    def id(self, recorded: int) -> int:
        return mix(recorded, self.copy) if self.copy else recorded
