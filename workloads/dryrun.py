"""Runs a program with no clock: every call, tool and wait is over at once.

Order: coroutines take turns, first come first served; a turn ends with a call,
a join or a timeout. This order is deterministic and topological (a call comes
after its parents). Timeouts never fire; abandon ends the program.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from workloads.base import ProgramSpec
from workloads.dag import DagCall, ProgramDag
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
)
from workloads.session import (
    AbandonEffect,
    CallEffect,
    CancelEffect,
    Cancelled,
    Effect,
    JoinEffect,
    Program,
    SpawnEffect,
    Task,
    ThinkEffect,
    TimeoutEffect,
    ToolEffect,
)


def dry_run(spec: ProgramSpec) -> ProgramDag:
    """The DAG of a program. What the program itself raises is passed on."""
    run = _DryRun()
    try:
        root = run.start(spec.launch(), None)
        run.to_the_end()
    finally:
        run.close()
    return ProgramDag.of(spec, root.script, run.calls)


def dry_runs(specs: Iterable[ProgramSpec]) -> list[ProgramDag]:
    """The DAGs of many programs."""
    return [dry_run(spec) for spec in specs]


class _Coroutine:
    """A running coroutine: what it did, and what it waits for."""

    __slots__ = ("children", "delay", "done", "number", "open", "ops", "parent", "program", "result",
                 "script", "task", "tools")  # fmt: skip

    def __init__(self, program: Program, parent: _Coroutine | None) -> None:
        self.program = program
        self.parent = parent
        self.script = Script()
        self.ops: list[Op] = self.script.ops
        self.children: list[_Coroutine] = []
        self.open = 0
        self.done = False
        self.result: Any = None
        self.task: Task | None = None
        self.number = -1
        # Tools and waits since the last call of this line of control.
        self.delay: float = parent.delay if parent else 0.0
        self.tools: tuple[tuple[str, float], ...] = parent.tools if parent else ()


class _DryRun:
    def __init__(self) -> None:
        self.ready: deque[tuple[_Coroutine, Any]] = deque()
        self.calls: list[DagCall] = []
        self.started: list[_Coroutine] = []
        self.spawned = 0
        self.abandoned = False

    def start(self, program: Program, parent: _Coroutine | None) -> _Coroutine:
        coroutine = _Coroutine(program, parent)
        self.started.append(coroutine)
        self.ready.append((coroutine, None))
        return coroutine

    def to_the_end(self) -> None:
        while self.ready and not self.abandoned:
            coroutine, value = self.ready.popleft()
            if not coroutine.done:
                self.turn(coroutine, value)

    def close(self) -> None:
        for coroutine in self.started:
            if not coroutine.done:
                coroutine.program.close()

    def turn(self, coroutine: _Coroutine, value: Any) -> None:
        """Resume with ``value`` (or throw it) until the next call, join or the end."""
        program = coroutine.program
        try:
            while not (self.abandoned or coroutine.done):
                effect = program.throw(value) if isinstance(value, Cancelled) else program.send(value)
                if type(effect) is CallEffect:
                    self.call(coroutine, effect)
                    self.ready.append((coroutine, None))
                    return
                value = self.react(coroutine, effect)
                if value is _WAIT:
                    return
        except StopIteration as stop:
            self.finish(coroutine, stop.value)
        except Cancelled:
            self.finish(coroutine, None)

    def call(self, coroutine: _Coroutine, effect: CallEffect) -> None:
        e, prompt = effect, effect.prompt
        coroutine.ops.append(
            CallOp(
                e.thread, e.index, e.parents, prompt, e.output_id, e.output_tokens, e.prompt_tokens, e.model
            )
        )
        call = DagCall(
            e.thread, e.index, e.parents, prompt, e.prompt_tokens, e.output_id, e.output_tokens, e.model,
            coroutine.delay, coroutine.tools,
        )  # fmt: skip
        self.calls.append(call)
        coroutine.delay, coroutine.tools = 0.0, ()

    def react(self, coroutine: _Coroutine, effect: Effect) -> Any:
        """Any other effect: what to resume with, or _WAIT."""
        match effect:
            case ToolEffect():
                coroutine.ops.append(ToolOp(effect.name, effect.work_s))
                return self.delay(coroutine, effect.name, effect.work_s)
            case ThinkEffect():
                coroutine.ops.append(ThinkOp(effect.seconds))
                return self.delay(coroutine, THINK, effect.seconds)
            case JoinEffect():
                children = [self.start(program, coroutine) for program in effect.programs]
                coroutine.ops.append(JoinOp([child.script for child in children]))
                return self.wait(coroutine, children) if children else []
            case TimeoutEffect():
                child = self.start(effect.program, coroutine)
                coroutine.ops.append(TimeoutOp(effect.seconds, child.script))
                return self.wait(coroutine, [child])
            case SpawnEffect():
                return self.spawn(coroutine, effect)
            case CancelEffect():
                return self.cancel(coroutine, effect.task)
            case AbandonEffect():
                coroutine.ops.append(AbandonOp())
                self.abandoned = True
                return _WAIT
        raise TypeError(f"a program yielded {effect!r}, which is no effect")

    def delay(self, coroutine: _Coroutine, name: str, seconds: float) -> None:
        coroutine.delay += seconds
        coroutine.tools = (*coroutine.tools, (name, seconds))

    def wait(self, coroutine: _Coroutine, children: list[_Coroutine]) -> object:
        coroutine.children, coroutine.open = children, len(children)
        return _WAIT

    def spawn(self, coroutine: _Coroutine, effect: SpawnEffect) -> Task:
        child = self.start(effect.program, coroutine)
        child.task = task = Task()
        child.parent = None
        child.number, self.spawned = self.spawned, self.spawned + 1
        task.driver_state = child
        coroutine.ops.append(SpawnOp(child.script, child.number))
        return task

    def cancel(self, coroutine: _Coroutine, task: Task) -> None:
        child = task.driver_state
        coroutine.ops.append(CancelOp(child.number))
        if not child.done and child is not coroutine:
            self.drop(child.children)
            child.children, child.open = [], 0
            child.script.cleanup = child.ops = []
            self.ready = deque(entry for entry in self.ready if entry[0] is not child)
            self.turn(child, Cancelled())
            if not child.script.cleanup:
                child.script.cleanup = None

    def drop(self, children: list[_Coroutine]) -> None:
        for child in children:
            if not child.done:
                child.done = True
                self.drop(child.children)
                child.program.close()

    def finish(self, coroutine: _Coroutine, result: Any) -> None:
        coroutine.done, coroutine.result = True, result
        if coroutine.task is not None:
            coroutine.task.done = True
        parent = coroutine.parent
        if parent is None or parent.done or coroutine not in parent.children:
            return
        parent.open -= 1
        if parent.open == 0:
            self.resume(parent)

    def resume(self, parent: _Coroutine) -> None:
        children, parent.children = parent.children, []
        slowest = max(children, key=lambda child: child.delay)
        parent.delay, parent.tools = slowest.delay, slowest.tools
        single = isinstance(parent.ops[-1], TimeoutOp)
        self.ready.append((parent, children[0].result if single else [c.result for c in children]))


THINK = "think"
"""The name under which a wait stands among a call's tools."""
_WAIT = object()
