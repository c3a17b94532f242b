"""Programs as greenlets: what bench/drivers/live.py does in asyncio, for Locust's processes only.

The same effects, the same names and token ids, the same rows; gevent's ``kill`` and ``Timeout`` stand
where asyncio cancels. Times are seconds since the run began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gevent
from gevent import GreenletExit
from gevent.event import AsyncResult
from gevent.pool import Group

from bench.drivers.audit import TICK_S
from bench.drivers.calls import CallFailed, Request, Response
from bench.drivers.live_records import LiveCall, LiveProgram, Trail
from bench.drivers.running import Asking, Line, Running
from bench.drivers.token_ids import TokenIds
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

STOPPED = (GreenletExit, gevent.Timeout)
"""How a greenlet learns that its call or its program is given up."""


class Caller(Protocol):
    """What the driver needs of a client."""

    def complete(self, request: Request) -> Response:
        """Blocks this greenlet only. Raises CallFailed."""


class Watcher(Protocol):
    """Who is told what happens."""

    def called(self, kind: str, call: LiveCall | None, seconds: float, error: CallFailed | None) -> None:
        """A call of a program of ``kind`` was answered, or failed after ``seconds``."""

    def ended(self, program: LiveProgram, calls: Sequence[LiveCall]) -> None:
        """A program is over; its calls in the order in which they ended."""


class _Running(Running):
    """A program that runs, its greenlets and its rows."""

    def __init__(self, spec: ProgramSpec, scheduled: float, ids: TokenIds) -> None:
        super().__init__(spec, scheduled, ids)
        self.tasks: list[Any] = []
        self.calls: list[LiveCall] = []


class GreenletDriver:
    """Runs programs in this process; ``origin`` is the run's begin on ``time.monotonic`` (s)."""

    def __init__(
        self, client: Caller, ids: TokenIds, run: str, cache_salt: str, watcher: Watcher, origin: float
    ) -> None:
        self.client = client
        self.ids = ids
        self.name = run
        self.cache_salt = cache_salt
        self.watcher = watcher
        self.origin = origin
        self.loop_lags: list[float] = []
        self._over = AsyncResult()
        self._left = 0

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.origin

    def run(self, specs: Sequence[ProgramSpec], times: Sequence[float]) -> None:
        """Send them all off and wait for the last one. Raises what the first that failed raised."""
        self._left = len(specs)
        if not specs:
            return
        group = Group()
        helpers = [gevent.spawn(self._dispatch, specs, times, group), gevent.spawn(self._watch_loop)]
        try:
            self._over.get()
        finally:
            gevent.killall(helpers)
            group.kill()

    def _dispatch(self, specs: Sequence[ProgramSpec], times: Sequence[float], group: Any) -> None:
        """The open loop: programs start at their times, whatever the server does."""
        for scheduled, place in sorted((at, i) for i, at in enumerate(times)):
            gevent.sleep(max(0.0, scheduled - self.now()))
            group.spawn(self._guarded_program, specs[place], scheduled)

    def _watch_loop(self) -> None:
        while True:
            before = time.monotonic()
            gevent.sleep(TICK_S)
            self.loop_lags.append(max(0.0, time.monotonic() - before - TICK_S))

    # -- programs ----------------------------------------------------------------------

    def _guarded_program(self, spec: ProgramSpec, scheduled: float) -> None:
        try:
            self._program(spec, scheduled)
        except Exception as error:
            if not self._over.ready():
                self._over.set_exception(error)
        self._left -= 1
        if self._left == 0 and not self._over.ready():
            self._over.set(None)

    def _program(self, spec: ProgramSpec, scheduled: float) -> None:
        running, began = _Running(spec, scheduled, self.ids), self.now()
        try:
            self._start(running, spec.launch(), None)
            _settled(running)
        finally:
            gevent.killall(running.tasks)  # their calls leave rows, too
        self.watcher.ended(running.row(began, self.now(), len(running.calls)), running.calls)

    def _start(self, running: _Running, program: Program, trail: Trail | None) -> Any:
        task = gevent.spawn(self._guarded, running, program, Line(trail))
        running.tasks.append(task)
        return task

    def _guarded(self, running: _Running, program: Program, line: Line) -> tuple[Exception | None, Any]:
        """(error, result) of a task; a killed one has neither."""
        try:
            return None, self._task(running, program, line)
        except Exception as error:
            return error, None

    def _task(self, running: _Running, program: Program, line: Line) -> Any:
        """Run a coroutine of a program, effect by effect."""
        resume: Callable[[Any], Any] = program.send
        value: Any = None
        while True:
            try:
                effect = resume(value)
            except StopIteration as stop:
                running.ends(line)
                return stop.value
            except (TimedOut, KeyboardInterrupt, MemoryError):
                raise
            except BaseException as error:  # SystemExit is no way out of a program
                raise running.fail(f"raised {type(error).__name__}: {error}") from error
            try:
                resume, value = program.send, self._effect(running, effect, line)
            except TimedOut as late:
                resume, value = program.throw, late
            except STOPPED:
                running.cancel(program)
                raise

    def _effect(self, running: _Running, effect: Effect, line: Line) -> Any:
        match effect:
            case CallEffect():
                return line.passed(self._call(running, effect))
            case ToolEffect():
                took = self._sleep(running.seconds(effect.work_s))
                running.tool_s += took
                return line.passed(tool_s=took)
            case ThinkEffect():
                took = self._sleep(running.seconds(effect.seconds))
                running.think_s += took
                return line.passed(think_s=took)
            case JoinEffect():
                return self._join(running, effect.programs, line)
            case SpawnEffect():
                return self._spawn(running, effect.program, line)
            case CancelEffect():
                return effect.task.driver_state.kill(block=False)
            case TimeoutEffect():
                return self._timeout(running, effect, line)
            case AbandonEffect():
                running.ends(line)
                return _abandon(running)
        raise running.fail(f"awaited {effect!r}; await effects of its session only")

    def _sleep(self, seconds: float) -> float:
        """Wait, and how much of it is the program's: waking late is the client's doing."""
        began = self.now()
        gevent.sleep(seconds)
        return min(seconds, self.now() - began)

    def _join(self, running: _Running, programs: Sequence[Program], line: Line) -> list[Any]:
        lines = [Line(line.trail) for _ in programs]
        running.threads += len(programs)
        pairs = zip(programs, lines, strict=True)
        results = _joined([gevent.spawn(self._guarded, running, program, own) for program, own in pairs])
        line.joined(lines)
        return results

    def _spawn(self, running: _Running, program: Program, line: Line) -> Handle:
        handle = Handle()
        running.threads += 1
        task = self._start(running, program, line.trail)
        task.link(lambda _: setattr(handle, "done", True))
        handle.driver_state = task
        return handle

    def _timeout(self, running: _Running, effect: TimeoutEffect, line: Line) -> Any:
        own, clock = Line(line.trail), gevent.Timeout.start_new(running.seconds(effect.seconds))
        try:
            result = self._task(running, effect.program, own)
        except gevent.Timeout as late:
            if late is not clock:
                raise
            raise TimedOut(f"no result within {effect.seconds} s") from None
        finally:
            clock.close()
        line.trail = own.trail
        return result

    # -- calls -------------------------------------------------------------------------

    def _call(self, running: _Running, effect: CallEffect) -> str:
        """Make a call; its name."""
        asking = Asking.of(running, effect, self.name, self.cache_salt, self.now())
        given = self.now()
        try:
            answer = self.client.complete(asking.request)
        except STOPPED:
            running.calls.append(asking.cut(given, self.now()))
            raise
        except CallFailed as error:
            self.watcher.called(running.spec.kind, None, self.now() - given, error)
            raise
        running.texts.replied(effect.output_id, answer.tokens)
        call = asking.answered(answer, self.origin)
        running.calls.append(call)
        self.watcher.called(running.spec.kind, call, call.t_last - call.t_send, None)
        return asking.request.name


def _joined(children: Sequence[Any]) -> list[Any]:
    """The results, in order; if one fails, the others are killed and its error is raised."""
    try:
        for child in gevent.iwait(children):
            _raise(child)
        return [child.value[1] for child in children]
    finally:
        gevent.killall(children)


def _settled(running: _Running) -> None:
    """Wait for all tasks: what was spawned may outlive the root, and spawn more."""
    seen: set[Any] = set()
    while left := [task for task in running.tasks if task not in seen]:
        for task in gevent.iwait(left):
            seen.add(task)
            _raise(task)


def _raise(task: Any) -> None:
    """What a task raised; a killed one raised nothing."""
    if isinstance(task.value, tuple) and task.value[0] is not None:
        raise task.value[0]


def _abandon(running: _Running) -> None:
    """The client leaves: every task of the program is killed, this one too."""
    running.abandoned = True
    for task in running.tasks:
        task.kill(block=False)
    gevent.event.Event().wait()
