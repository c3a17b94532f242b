"""What a program may await besides calls: tools, joins, timeouts, and leaving.

The part of the virtual-time driver that knows effects; ``virtual`` has the
clock, the calls and the engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush
from typing import Any

from bench.drivers.cores import CorePool
from bench.drivers.tasks import Run, Task
from systems.protocols import Engine
from vocabulary import INF, Call, Finished, on_grid
from workloads.session import (
    AbandonEffect,
    CancelEffect,
    Effect,
    JoinEffect,
    Program,
    SpawnEffect,
    ThinkEffect,
    TimedOut,
    TimeoutEffect,
    ToolEffect,
)
from workloads.session import Task as Handle

RESULT, WAKE, ARRIVE = range(3)
"""Kinds of events: at equal times they happen in this order."""


LONGEST = 2.0**21
"""Seconds that fit the time grid (``vocabulary.on_grid``)."""


class ProgramError(RuntimeError):
    """A program raised, or asked for something impossible; names the program."""


def raised(task: Task, error: BaseException) -> ProgramError:
    """What a program raised, in one line."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return ProgramError(f"program {task.run.spec.index} ({task.run.spec.kind}) raised {text}")


def no_time(task: Task, what: str, seconds: object) -> ProgramError:
    """A duration that is none: negative, infinite, not a number, or beyond the time grid."""
    return ProgramError(
        f"program {task.run.spec.index} ({task.run.spec.kind}): {what} of {seconds!r} s; "
        f"it must be a number of seconds from 0 to {LONGEST:.0f}"
    )


class Effects:
    """Begins effects and ends tasks; ``now`` in seconds, ``pool`` None for unlimited cores."""

    def __init__(self, engines: Sequence[Engine], cores: float) -> None:
        self.engines = list(engines)
        self.pool = CorePool(cores) if cores != INF else None
        self.events: list[tuple[Any, ...]] = []
        self.asked = 0
        self.now = 0.0

    def resume(self, task: Task, value: Any) -> None:
        """Run a coroutine until it waits for something that takes time."""
        raise NotImplementedError

    def left(self, row: Finished) -> None:
        """A call left its engine: finished, or aborted."""
        raise NotImplementedError

    def settle(self, run: Run) -> None:
        """End the program if nothing of it is left."""
        raise NotImplementedError

    def at(self, time: float, kind: int, what: Any, first: int = 0) -> None:
        """Schedule an event; equal times go by kind, then ``first``, then order of asking."""
        self.asked += 1
        heappush(self.events, (time, kind, first, self.asked, what))

    def wake_after(self, seconds: float, task: Task, tool: bool) -> None:
        """Resume ``task`` when its tool (or its person) is done.

        The event is data, not a closure: there is one per call.
        """
        self.asked += 1
        now = self.now
        try:
            time = now + on_grid(seconds)
        except (ValueError, TypeError):
            raise no_time(task, "a tool" if tool else "a wait", seconds) from None
        heappush(self.events, (time, WAKE, 0, self.asked, task, task.ticket, now, tool))

    def woken(self, task: Task, ticket: int, started: float, tool: bool) -> None:
        """A tool or a person is done; nobody waits for it if the task has gone on."""
        if task.ticket == ticket and task.coroutine is not None:
            task.tool = None
            task.waited(self.now - started, tool)
            self.resume(task, None)

    def begin(self, task: Task, effect: Effect) -> tuple[bool, Any]:
        """Begin an effect; (True, value) if the program goes on at once."""
        match effect:
            case ToolEffect():
                self._tool(task, effect)
            case ThinkEffect():
                self.wake_after(effect.seconds, task, False)
            case JoinEffect():
                return self._join(task, effect.programs)
            case SpawnEffect():
                return True, self._spawn(task, effect.program)
            case CancelEffect():
                self._cancel(effect.task)
                return True, None
            case TimeoutEffect():
                self._timeout(task, effect)
            case AbandonEffect():
                self._abandon(task)
            case _:
                raise ProgramError(
                    f"program {task.run.spec.index} awaited {effect!r}; await effects of its session only"
                )
        return False, None

    def _tool(self, task: Task, effect: ToolEffect) -> None:
        if self.pool is None:
            self.wake_after(effect.work_s, task, True)
            return
        ticket, now = task.ticket, self.now
        wake = lambda: self.woken(task, ticket, now, True)  # noqa: E731
        try:
            work_s = on_grid(effect.work_s)
        except (ValueError, TypeError):
            raise no_time(task, f"tool {effect.name!r}", effect.work_s) from None
        task.tool = self.pool.start(work_s, now, wake)
        self._watch(self.pool)

    def _watch(self, pool: CorePool) -> None:
        """Look at the cores again when the next tool is done, unless that changes before."""
        done = pool.next_done()

        def look() -> None:
            if pool.next_done() == done:
                pool.pop_done(done)()
                self._watch(pool)

        if done != INF:
            self.at(done, WAKE, look)

    def _join(self, task: Task, programs: list[Program]) -> tuple[bool, Any]:
        if not programs:
            return True, []
        run = task.run
        task.results = [None] * len(programs)
        task.pending = len(programs)
        task.children = [Task(run, program, task, i) for i, program in enumerate(programs)]
        run.row.threads += len(programs)
        for child in task.children:
            self.resume(child, None)
        return False, None

    def _spawn(self, task: Task, program: Program) -> Handle:
        child = Task(task.run, program)
        child.path = task.path
        child.handle = Handle()
        child.handle.driver_state = child
        task.run.row.threads += 1
        self.at(self.now, WAKE, lambda: self.resume(child, None))
        return child.handle

    def _timeout(self, task: Task, effect: TimeoutEffect) -> None:
        ticket = task.ticket
        try:
            late_at = self.now + on_grid(effect.seconds)
        except (ValueError, TypeError):
            effect.program.close()  # it will not be awaited
            raise no_time(task, "a timeout", effect.seconds) from None
        task.results, task.pending, task.single = [None], 1, True
        child = Task(task.run, effect.program, task)
        task.children = [child]

        def late() -> None:
            if task.ticket == ticket and child.coroutine is not None:
                self.kill(child)
                task.children, task.single = [], False
                self.resume(task, TimedOut(f"no result within {effect.seconds} s"))

        self.at(late_at, WAKE, late)
        self.resume(child, None)

    def _cancel(self, handle: Handle) -> None:
        task = handle.driver_state
        if task.coroutine is not None:
            self.kill(task)

    def _abandon(self, task: Task) -> None:
        run = task.run
        for top in run.tops:
            self.kill(top)
        run.over(self.now, "abandoned", task.path)
        self.settle(run)

    def returned(self, task: Task, value: Any) -> None:
        """A coroutine returned; whoever waits for it may go on."""
        task.end()
        parent = task.parent
        if parent is None or parent.coroutine is None:
            if task.run.tasks == 0:
                task.run.over(self.now, "finished", task.path)
                self.settle(task.run)
            return
        parent.results[task.place] = value
        parent.pending -= 1
        if parent.pending == 0:
            results, parent.results, parent.children = parent.results, [], []
            parent.path = task.path
            single, parent.single = parent.single, False
            self.resume(parent, results[0] if single else results)

    def failed(self, task: Task, error: TimedOut) -> None:
        """A timeout the task did not catch goes to whoever waits for it."""
        task.end()
        parent = task.parent
        if parent is None:
            raise ProgramError(f"program {task.run.spec.index}: nobody caught a timeout ({error})") from error
        for sibling in parent.children:
            self.kill(sibling)
        parent.children, parent.single = [], False
        self.resume(parent, error)

    def kill(self, task: Task) -> None:
        """Stop a task and what it waits for; its open call is aborted at its engine's next boundary."""
        if task.coroutine is None:
            return
        for child in task.children:
            self.kill(child)
        if task.tool is not None and self.pool is not None:
            self.pool.cancel(task.tool, self.now)
            self._watch(self.pool)
        if task.call is not None:
            self._abort(task.call, self.engines[task.engine])
        try:
            task.cancel()
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:
            raise raised(task, error) from error

    def _abort(self, call: Call, engine: Engine) -> None:
        def leave() -> None:
            row = engine.abort(call, self.now)
            if row is not None:
                self.left(row)

        clock = engine.clock()
        boundary = clock if clock != INF else engine.results_at()
        self.at(max(self.now, boundary), WAKE, leave)
