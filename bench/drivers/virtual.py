"""The virtual-time driver: programs, tools, routers and engines on one clock.

Events happen in order of (time, kind): results of finished calls, wake-ups
(tools, people, timeouts, clients that leave), arrivals. All events at t are delivered before a
step starts at t. Engines run ahead only as far as nothing can interfere: to
the next event, and to the earliest time another engine can finish a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from bench.drivers.cores import CorePool
from bench.drivers.tasks import Run, Task
from bench.records import EngineSample, RunEnd, Sink
from systems.process_table import ProcessTable
from systems.protocols import Engine, Router
from vocabulary import GRID, INF, Body, Call, Finished, Usage, on_grid
from workloads.base import ProgramSpec
from workloads.session import (
    AbandonEffect,
    CallEffect,
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

_RESULT, _WAKE, _ARRIVE = range(3)
Progress = Callable[[int, float], None]


class ProgramError(RuntimeError):
    """A program raised, or asked for something impossible; names the program."""


def drive(
    specs: Sequence[ProgramSpec],
    *,
    times: Sequence[float] | None,
    engines: Sequence[Engine],
    router: Router,
    table: ProcessTable,
    sink: Sink,
    concurrency: int | None = None,
    shared_table: bool = True,
    remaining: Callable[[ProgramSpec], float] | None = None,
    cores: float = INF,
    sample_s: float = 10.0,
    progress: Progress | None = None,
) -> RunEnd:
    """Run every program to its end and send each row to ``sink``.

    ``times[i]`` is when ``specs[i]`` arrives (seconds); or ``concurrency`` =
    N programs at a time, the next one starting when one ends. ``remaining``
    gives a program's output tokens to clairvoyant schedulers. With
    ``shared_table`` the schedulers charge ``table`` themselves; else the front
    end does, from what comes back with each call.
    """
    if (times is None) == (concurrency is None):
        raise ValueError("give either arrival times or a concurrency")
    driver = VirtualDriver(engines, router, table, sink, shared_table, remaining, cores, sample_s, progress)
    if times is not None:
        for spec, time in zip(specs, times, strict=True):
            driver.at(on_grid(time), _ARRIVE, spec)
    else:
        driver.backlog = iter(specs)
        for _ in range(concurrency or 0):
            driver.next_program()
    return driver.loop()


class VirtualDriver:
    """State of one run; use ``drive``."""

    def __init__(
        self, engines: Sequence[Engine], router: Router, table: ProcessTable, sink: Sink,
        shared_table: bool, remaining: Callable[[ProgramSpec], float] | None, cores: float,
        sample_s: float, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.engines = list(engines)
        self.router = router
        self.table = table
        self.sink = sink
        self.shared_table = shared_table
        self.remaining = remaining
        self.pool = CorePool(cores) if cores != INF else None
        self.sample_s = sample_s
        self.next_sample = 0.0
        self.progress = progress
        self.backlog: Iterator[ProgramSpec] = iter(())
        self.events: list[tuple[float, int, int, int, Any]] = []
        self.runs: dict[int, Run] = {}
        self.asked = self.seq = 0
        self.programs = self.calls = 0
        self.now = 0.0

    # -- the clock -------------------------------------------------------------------

    def at(self, time: float, kind: int, what: Any, first: int = 0) -> None:
        """Schedule an event; equal times go by kind, then ``first``, then order of asking."""
        self.asked += 1
        heappush(self.events, (time, kind, first, self.asked, what))

    def loop(self) -> RunEnd:
        """Run until nothing is left."""
        events, engines = self.events, self.engines
        only = engines[0] if len(engines) == 1 else None
        while True:
            time = events[0][0] if events else INF
            engine = only or min(engines, key=_clock)
            if engine.clock() < time:
                if engine.advance(time if only else self._limit(engine, time)):
                    self.at(engine.results_at(), _RESULT, engine, engine.id)
            elif events:
                self._event()
            else:
                self._sample()
                return RunEnd(self.now, self.programs, self.calls, [e.stats() for e in engines])

    def _event(self) -> None:
        self.now, kind, _, _, what = heappop(self.events)
        if self.now >= self.next_sample:
            self._sample()
        if kind == _RESULT:
            for row in what.collect():
                self._left(row)
        elif kind == _WAKE:
            what()
        else:
            self._arrive(what)

    def _limit(self, engine: Engine, time: float) -> float:
        """How far ``engine``, the one furthest behind, may run: at least one step."""
        others = min([e.horizon() for e in self.engines if e is not engine])
        return max(min(time, others), engine.clock() + GRID)

    def _sample(self) -> None:
        self.next_sample = (self.now // self.sample_s + 1) * self.sample_s
        for engine in self.engines:
            view = engine.view()
            self.sink.sample(
                EngineSample(self.now, engine.id, view.running, view.calls - view.running,
                             view.kv_used, view.kv_cached)
            )  # fmt: skip
            if engine.decisions:
                self.sink.decisions(engine.decisions)
                engine.decisions.clear()

    # -- programs --------------------------------------------------------------------

    def next_program(self) -> None:
        """Closed loop: the next program of the backlog, if there is one, arrives now."""
        spec = next(self.backlog, None)
        if spec is not None:
            self.at(self.now, _ARRIVE, spec)

    def _arrive(self, spec: ProgramSpec) -> None:
        left = None if self.remaining is None else self.remaining(spec)
        run = self.runs[spec.index] = Run(spec, self.now, left)
        self.table.start(spec.index, self.now)
        self._resume(Task(run, spec.launch()), None)

    def _resume(self, task: Task, value: Any) -> None:
        """Run a coroutine until it waits for something that takes time."""
        while task.coroutine is not None:
            try:
                if isinstance(value, TimedOut):
                    effect = task.coroutine.throw(value)
                else:
                    effect = task.coroutine.send(value)
            except StopIteration as stop:
                self._returned(task, stop.value)
                return
            except TimedOut as late:
                self._failed(task, late)
                return
            except Exception as error:
                name = f"program {task.run.spec.index} ({task.run.spec.kind})"
                raise ProgramError(f"{name} raised {type(error).__name__}: {error}") from error
            task.ticket += 1
            if type(effect) is CallEffect:
                self._call(task, effect)
                return
            going_on, value = self._effect(task, effect)
            if not going_on:
                return

    def _effect(self, task: Task, effect: Effect) -> tuple[bool, Any]:
        """Begin an effect; (True, value) if the program goes on at once."""
        match effect:
            case ToolEffect():
                self._tool(task, effect)
            case ThinkEffect():
                self.at(self.now + on_grid(effect.seconds), _WAKE, self._waker(task, 0.0, 1.0))
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

    # -- effects ---------------------------------------------------------------------

    def _call(self, task: Task, effect: CallEffect) -> None:
        run, engines = task.run, self.engines
        program = run.spec.index
        self.seq += 1
        call = Call(self.seq, program, effect.thread, effect.index, effect.prompt_tokens,
                    effect.model, effect.parents, run.left)  # fmt: skip
        place = 0
        if len(engines) > 1:
            place = self.router.route(call, [e.view() for e in engines], self.now)
        snap = self.table.snapshot(program)
        task.call = (call, place, snap)
        run.open[call.seq] = task
        body = Body(effect.prompt, effect.output_id, effect.output_tokens)
        try:
            engines[place].submit(call, body, snap, self.now)
        except ValueError as error:
            raise ProgramError(f"program {program} ({run.spec.kind}): {error}") from error

    def _waker(self, task: Task, tool: float, think: float) -> Callable[[], None]:
        """What to do when a tool (or a person) of ``task`` is done."""
        started, ticket = self.now, task.ticket

        def wake() -> None:
            if task.ticket == ticket and task.coroutine is not None:
                seconds = self.now - started
                task.tool = None
                task.waited(tool * seconds, think * seconds)
                self._resume(task, None)

        return wake

    def _tool(self, task: Task, effect: ToolEffect) -> None:
        wake, work = self._waker(task, 1.0, 0.0), on_grid(effect.work_s)
        if self.pool is None:
            self.at(self.now + work, _WAKE, wake)
        else:
            task.tool = self.pool.start(work, self.now, wake)
            self._watch(self.pool)

    def _watch(self, pool: CorePool) -> None:
        """Look at the cores again when the next tool is done, unless that changes before."""
        done = pool.next_done()

        def look() -> None:
            if pool.next_done() == done:
                pool.pop_done(done)()
                self._watch(pool)

        if done != INF:
            self.at(done, _WAKE, look)

    def _join(self, task: Task, programs: list[Program]) -> tuple[bool, Any]:
        if not programs:
            return True, []
        run = task.run
        task.results = [None] * len(programs)
        task.pending = len(programs)
        task.children = [Task(run, program, task, i) for i, program in enumerate(programs)]
        run.row.threads += len(programs)
        for child in task.children:
            self._resume(child, None)
        return False, None

    def _spawn(self, task: Task, program: Program) -> Handle:
        child = Task(task.run, program)
        child.path = task.path
        child.handle = Handle()
        child.handle.driver_state = child
        task.run.row.threads += 1
        self.at(self.now, _WAKE, lambda: self._resume(child, None))
        return child.handle

    def _timeout(self, task: Task, effect: TimeoutEffect) -> None:
        ticket = task.ticket
        task.results, task.pending, task.single = [None], 1, True
        child = Task(task.run, effect.program, task)
        task.children = [child]

        def late() -> None:
            if task.ticket == ticket and child.coroutine is not None:
                self._kill(child)
                task.children, task.single = [], False
                self._resume(task, TimedOut(f"no result within {effect.seconds} s"))

        self.at(self.now + on_grid(effect.seconds), _WAKE, late)
        self._resume(child, None)

    def _cancel(self, handle: Handle) -> None:
        task = handle.driver_state
        if task.coroutine is not None:
            self._kill(task)

    def _abandon(self, task: Task) -> None:
        run = task.run
        for top in run.tops:
            self._kill(top)
        run.over(self.now, "abandoned", task.path)
        self._settle(run)

    # -- ends ------------------------------------------------------------------------

    def _left(self, row: Finished) -> None:
        """A call left its engine: finished, or aborted."""
        call = row.call
        run = self.runs[call.program]
        task = run.open.pop(call.seq)
        self.calls += 1
        self.sink.call(row)
        run.account(row)
        if not self.shared_table and task.call is not None:
            usage = Usage(row.served, row.prefill_s + row.reprefill_s + row.decode_s, row.wait_s)
            self.table.charge(call.program, task.call[2].service, usage, self.now)
        task.call = None
        if task.coroutine is not None:
            task.spent(row)
            self._resume(task, None)
        else:
            self._settle(run)

    def _returned(self, task: Task, value: Any) -> None:
        task.end()
        parent = task.parent
        if parent is None or parent.coroutine is None:
            if task.run.tasks == 0:
                task.run.over(self.now, "finished", task.path)
                self._settle(task.run)
            return
        parent.results[task.place] = value
        parent.pending -= 1
        if parent.pending == 0:
            results, parent.results, parent.children = parent.results, [], []
            parent.path = task.path
            single, parent.single = parent.single, False
            self._resume(parent, results[0] if single else results)

    def _failed(self, task: Task, error: TimedOut) -> None:
        """A timeout the task did not catch goes to whoever waits for it."""
        task.end()
        parent = task.parent
        if parent is None:
            raise ProgramError(f"program {task.run.spec.index}: nobody caught a timeout ({error})") from error
        for sibling in parent.children:
            self._kill(sibling)
        parent.children, parent.single = [], False
        self._resume(parent, error)

    def _kill(self, task: Task) -> None:
        """Stop a task and what it waits for; its open call is aborted at its engine's next boundary."""
        if task.coroutine is None:
            return
        for child in task.children:
            self._kill(child)
        if task.tool is not None and self.pool is not None:
            self.pool.cancel(task.tool, self.now)
            self._watch(self.pool)
        if task.call is not None:
            self._abort(task.call[0], task.call[1])
        try:
            task.cancel()
        except Exception as error:
            raise ProgramError(f"program {task.run.spec.index} ({task.run.spec.kind}): {error}") from error

    def _abort(self, call: Call, place: int) -> None:
        engine = self.engines[place]

        def leave() -> None:
            row = engine.abort(call, self.now)
            if row is not None:
                self._left(row)

        clock = engine.clock()
        boundary = clock if clock != INF else engine.results_at()
        self.at(max(self.now, boundary), _WAKE, leave)

    def _settle(self, run: Run) -> None:
        """The program is over once no task runs and no call is in an engine."""
        if run.tasks or run.open or run.row.t_end == INF:
            return
        program = run.spec.index
        del self.runs[program]
        self.programs += 1
        self.sink.program(run.close())
        self.table.end(program)
        for engine in self.engines:
            engine.end_program(program, self.now)
        if self.progress is not None:
            self.progress(self.programs, self.now)
        self.next_program()


def _clock(engine: Engine) -> float:
    return engine.clock()
