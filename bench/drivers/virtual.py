"""The virtual-time driver: programs, tools, routers and engines on one clock.

Events happen in order of (time, kind): results of finished calls, wake-ups
(tools, people, timeouts, clients that leave), arrivals. All events at t are delivered before a
step starts at t. Engines run ahead only as far as nothing can interfere: to
the next event, and to the earliest time another engine can finish a call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop
from typing import Any

from bench.drivers.backlog import Backlog, Starts
from bench.drivers.effects import ARRIVE, RESULT, Effects, ProgramError, raised
from bench.drivers.tasks import Run, Task
from bench.records import EngineSample, RunEnd, Sink
from systems.process_table import ProcessTable
from systems.protocols import Engine, Environment, Gate, Retention, Router
from vocabulary import GRID, INF, Call, Finished, Usage, on_grid
from workloads.base import ProgramSpec
from workloads.session import CallEffect, TimedOut, ToolEffect

__all__ = ["ProgramError", "drive"]

Progress = Callable[[int, float], None]


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
    gate: Gate | None = None,
    retention: Retention | None = None,
    environment: Environment | None = None,
) -> RunEnd:
    """Run every program to its end and send each row to ``sink``.

    ``times[i]`` is when ``specs[i]`` arrives (seconds); or ``concurrency`` =
    N programs at a time, the next one starting when one ends. ``remaining``
    gives a program's output tokens to clairvoyant schedulers, which then learn
    each call's, too. A router that declares ``reads_prompt`` finds it in the call. With
    ``shared_table`` the schedulers charge ``table`` themselves; else the front
    end does, from what comes back with each call. ``gate``, ``retention``, ``environment``: None where
    nothing is held, kept or prepared.
    """
    if (times is None) == (concurrency is None):
        raise ValueError("give either arrival times or a concurrency")
    common = (engines, router, table, sink, shared_table, remaining, cores, sample_s, progress)
    if gate is None and retention is None and environment is None:
        driver = VirtualDriver(*common)
    else:
        from bench.drivers.governed import GovernedDriver

        driver = GovernedDriver(*common, gate, retention, environment)
    if times is not None:
        for spec, time in zip(specs, times, strict=True):
            driver.at(on_grid(time), ARRIVE, spec)
    else:
        driver.backlog = Backlog(specs, concurrency or 0)
        driver.arrivals(driver.backlog.start(0.0))
    with _rare_collections():
        return driver.loop()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A run makes thousands of objects that stay and few cycles: look for those less often."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class VirtualDriver(Effects):
    """State of one run; use ``drive``."""

    def __init__(
        self, engines: Sequence[Engine], router: Router, table: ProcessTable, sink: Sink,
        shared_table: bool, remaining: Callable[[ProgramSpec], float] | None, cores: float,
        sample_s: float, progress: Progress | None,
    ) -> None:  # fmt: skip
        super().__init__(engines, cores)
        self.router = router
        self.reads_prompt = len(self.engines) > 1 and getattr(router, "reads_prompt", False)
        self.forget: Callable[[int], None] | None = getattr(router, "end", None)
        self.table = table
        self.sink = sink
        self.shared_table = shared_table
        self.remaining = remaining
        self.sample_s = sample_s
        self.next_sample = self.ended = 0.0
        self.progress = progress
        self.plain_tools = self.pool is None
        self.backlog: Backlog | None = None
        self.runs: dict[int, Run] = {}
        self.seq = 0
        self.programs = self.calls = 0

    # -- the clock -------------------------------------------------------------------

    def loop(self) -> RunEnd:
        """Run until nothing is left."""
        if len(self.engines) == 1:
            self._one_engine(self.engines[0])
        else:
            self._many_engines()
        self.now = self.ended  # what came later was nobody's: a stale timeout, a lease
        self._sample()
        return RunEnd(self.now, self.programs, self.calls, [e.stats() for e in self.engines])

    def _one_engine(self, engine: Engine) -> None:
        """The loop of ``_many_engines`` where results need no place among the events.

        An engine whose clock is not before the next event advances by nothing.
        """
        events, advance = self.events, engine.advance
        while True:
            if advance(events[0][0] if events else INF):
                done = engine.results_at()
                if events and events[0][0] < done:
                    self.at(done, RESULT, engine, engine.id)
                else:  # results come before anything else at their time
                    self._results(engine, done)
            elif events:
                self._event()
            else:
                return

    def _many_engines(self) -> None:
        events, engines = self.events, self.engines
        while True:
            time = events[0][0] if events else INF
            engine = min(engines, key=_clock)
            if engine.clock() < time:
                if engine.advance(self._limit(engine, time)):
                    self.at(engine.results_at(), RESULT, engine, engine.id)
            elif events:
                self._event()
            else:
                return

    def _limit(self, engine: Engine, time: float) -> float:
        """How far ``engine``, the one furthest behind, may run: at least one step."""
        others = min([e.horizon() for e in self.engines if e is not engine])
        return max(min(time, others), engine.clock() + GRID)

    def _results(self, engine: Engine, now: float) -> None:
        self.now = now
        if now >= self.next_sample:
            self._sample()
        for row in engine.collect():
            self.left(row)

    def _event(self) -> None:
        event = heappop(self.events)
        now, kind, what = event[0], event[1], event[4]
        if kind == RESULT:
            self._results(what, now)
            return
        self.now = now
        if now >= self.next_sample:
            self._sample()
        if kind == ARRIVE:
            self.arrive(what)
        elif type(what) is Task:
            self.woken(what, event[5], event[6], event[7])
        else:
            what()

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

    def arrivals(self, starts: Starts) -> None:
        """Closed loop: programs of the backlog that arrive now or later."""
        for time, spec in starts:
            self.at(time, ARRIVE, spec)

    def arrive(self, spec: ProgramSpec) -> None:
        """A program is here, and runs until it waits for something."""
        left = None if self.remaining is None else self.remaining(spec)
        run = self.runs[spec.index] = Run(spec, self.now, left)
        self.table.start(spec.index, self.now)
        self.resume(Task(run, spec.launch()), None)

    def resume(self, task: Task, value: Any) -> None:
        """Run a coroutine until it waits for something that takes time."""
        coroutine = task.coroutine
        while coroutine is not None:
            try:
                effect = coroutine.throw(value) if type(value) is TimedOut else coroutine.send(value)
            except StopIteration as stop:
                self.returned(task, stop.value)
                return
            except TimedOut as late:
                self.failed(task, late)
                return
            except (KeyboardInterrupt, MemoryError):
                raise
            except BaseException as error:  # SystemExit is no way out of a program
                raise raised(task, error) from error
            task.ticket += 1
            if type(effect) is CallEffect:
                self.call(task, effect)
                return
            if type(effect) is ToolEffect and self.plain_tools:  # what follows most calls
                self.wake_after(effect.work_s, task, True)
                return
            going_on, value = self.begin(task, effect)
            if not going_on:
                return
            coroutine = task.coroutine  # None if it cancelled itself

    def call(self, task: Task, effect: CallEffect) -> None:
        """A program asks the model: to which engine it goes, and there."""
        call = self.make(task, effect)
        if len(self.engines) > 1:
            task.engine = self.router.route(call, [e.view() for e in self.engines], self.now)
        self.submit(task, effect)

    def make(self, task: Task, effect: CallEffect) -> Call:
        """The call as policies see it; from now on it is open."""
        run = task.run
        self.seq += 1
        task.call = call = Call(
            self.seq, run.spec.index, effect.thread, effect.index, effect.prompt_tokens,
            effect.model, effect.parents, run.left,
            None if run.left is None else effect.output_tokens,
            effect.prompt if self.reads_prompt else (),
        )  # fmt: skip
        run.open[self.seq] = task
        return call

    def submit(self, task: Task, effect: CallEffect) -> None:
        """Give the open call to its engine."""
        run, call = task.run, task.call
        assert call is not None
        task.snap = snap = self.table.snapshot(call.program)
        try:
            self.engines[task.engine].submit(call, effect, snap, self.now)
        except ValueError as error:
            raise ProgramError(f"program {call.program} ({run.spec.kind}): {error}") from error

    def left(self, row: Finished) -> None:
        """A call left its engine: finished, or aborted."""
        call = row.call
        run = self.runs[call.program]
        task = run.open.pop(call.seq)
        self.calls += 1
        self.sink.call(row)
        task.spent(row)
        if not self.shared_table and task.call is not None:
            usage = Usage(row.served, row.t_end - row.t_arrive - row.wait_s, row.wait_s)
            self.table.charge(call.program, task.snap.service, usage, self.now)
        task.call = None
        if task.coroutine is not None:
            self.resume(task, None)
        else:
            self.settle(run)

    def settle(self, run: Run) -> None:
        """The program is over once no task runs and no call is in an engine."""
        if run.tasks or run.open or run.row.t_end == INF:
            return
        program = run.spec.index
        del self.runs[program]
        run.tops.clear()  # a cycle: the task knows its run
        self.programs += 1
        self.ended = self.now
        self.sink.program(run.close())
        self.table.end(program)
        if self.forget is not None:
            self.forget(program)
        for engine in self.engines:
            engine.end_program(program, self.now)
        if self.progress is not None:
            self.progress(self.programs, self.now)
        if self.backlog is not None:
            self.arrivals(self.backlog.ended(run.spec, self.now))


def _clock(engine: Engine) -> float:
    return engine.clock()
