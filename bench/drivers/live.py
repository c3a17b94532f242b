"""The live driver: the same programs as on virtual time, against a real server, in one asyncio process.

Programs arrive at their scheduled times whatever the server does (open loop), and their latency counts
from there; in a closed loop from when a place was free. Tools and people are sleeps; a tool has a core of its
own. Times are seconds since the run began.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.affinity import ahead
from bench.drivers.audit import Audit, LoopWatch
from bench.drivers.calls import CallFailed, Client, Request, Response
from bench.drivers.delivered import Delivered
from bench.drivers.live_environments import LiveEnvironments
from bench.drivers.live_records import LiveCall, LiveProgram, LiveRun, Trail
from bench.drivers.loop import sleep_until
from bench.drivers.running import Asking, Line, Running
from bench.drivers.token_ids import TokenIds
from systems.protocols import Environment
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

__all__ = ["PERSON", "Away", "drive_live"]

PERSON = "human"
"""The tool that a person is to a retention policy."""
Away = Callable[[str, str, int, str], None]


async def drive_live(
    specs: Sequence[ProgramSpec],
    times: Sequence[float] | None,
    client: Client,
    ids: TokenIds,
    *,
    concurrency: int | None = None,
    run: str = "run",
    cache_salt: str = "",
    watch: Callable[[], None] = lambda: None,
    over: Callable[[str], None] = lambda _: None,
    away: Away | None = None,
    environment: Environment | None = None,
) -> LiveRun:
    """Run every program to its end; ``times[i]`` is when ``specs[i]`` arrives (seconds from now), or
    ``concurrency`` of them run at all times, in order: the next arrives when one is over.

    ``run`` names calls in the server's logs: RUN.PROGRAM.THREAD.INDEX. ``watch`` is asked when a call
    fails, and may raise something better (the server has died); ``over`` hears the ``program_id`` of each
    program that is over; ``away`` of each tool that begins after a call: ``program_id``, thread and index
    of that, the tool's name, "human" for a person. Tools wait for the sandboxes of ``environment``, if
    there is one. Raises CallFailed or ProgramError at the first call or program that fails: nothing is
    dropped silently.
    """
    driver = LiveDriver(client, ids, run, cache_salt, watch, over, away, environment)
    if (times is None) == (concurrency is None):
        raise ValueError("give either arrival times or a concurrency")
    return await driver.run(specs, times, concurrency or 0)


class _Running(Running):
    """A program that runs, and its open tasks."""

    def __init__(self, spec: ProgramSpec, scheduled: float, ids: TokenIds) -> None:
        super().__init__(spec, scheduled, ids)
        self.tasks: set[asyncio.Task[Any]] = set()


class LiveDriver:
    """State of one run; use ``drive_live``."""

    def __init__(
        self, client: Client, ids: TokenIds, run: str, cache_salt: str,
        watch: Callable[[], None], over: Callable[[str], None] = lambda _: None, away: Away | None = None,
        environment: Environment | None = None,
    ) -> None:  # fmt: skip
        self.client = client
        self.ids = ids
        self.name = run
        self.cache_salt = cache_salt
        self.watch = watch
        self.over = over
        self.away = away
        self.environment = environment
        self.sandboxes: LiveEnvironments | None = None
        self.origin = 0.0
        self.calls: list[LiveCall] = []
        self.programs: list[LiveProgram] = []
        self.open = 0
        self.most_open = 0

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.origin

    async def run(
        self, specs: Sequence[ProgramSpec], times: Sequence[float] | None, concurrency: int = 0
    ) -> LiveRun:
        """Send them all off and wait for the last one."""
        self.origin, cpu = time.monotonic(), time.process_time()
        wall = time.time()
        if self.environment is not None:
            self.sandboxes = LiveEnvironments(self.environment, self.now)
        try:
            with ahead() as prompt:
                async with LoopWatch() as watch:
                    if times is None:
                        await self._closed(iter(specs), concurrency)
                    else:
                        await _all([self._program(s, t) for s, t in zip(specs, times, strict=True)])
        finally:
            counts, events = ({}, []) if self.sandboxes is None else self.sandboxes.close()
        took = self.now()
        lags = [call.t_send - call.t_sched for call in self.calls]
        delivered = Delivered.of(*self._arrivals())
        share = (time.process_time() - cpu) / took
        audit = Audit.of(lags, watch.lags, share, self.most_open, delivered, prompt)
        self.programs.sort(key=lambda row: row.program)
        return LiveRun(self.name, wall, took, self.programs, self.calls, audit, self.origin, counts, events)

    def _arrivals(self) -> tuple[list[float], list[float]]:
        """When each program's first call was due, and when it was sent; in order of sending."""
        first: dict[int, LiveCall] = {}
        for call in sorted(self.calls, key=lambda call: call.t_send):
            first.setdefault(call.program, call)
        return [call.t_sched for call in first.values()], [call.t_send for call in first.values()]

    # -- programs ----------------------------------------------------------------------

    async def _closed(self, line: Iterator[ProgramSpec], places: int) -> None:
        """A closed loop: each place takes the next program when its last one is over."""

        async def place() -> None:
            for spec in line:
                await self._program(spec, self.now())

        await _all([place() for _ in range(places)])

    async def _program(self, spec: ProgramSpec, scheduled: float) -> None:
        await sleep_until(self.origin + scheduled)
        running, began, before = _Running(spec, scheduled, self.ids), self.now(), len(self.calls)
        if self.sandboxes is not None:
            self.sandboxes.arrive(spec.index)
        root = self._start(running, spec.launch(), None)
        try:
            await root
            while running.tasks:  # what was spawned may outlive the root, and spawn more
                await _settled(running.tasks)
        except asyncio.CancelledError:
            if not running.abandoned:
                raise
        finally:
            for task in running.tasks:
                task.cancel()
            await asyncio.gather(*running.tasks, return_exceptions=True)  # their calls leave rows, too
            self.over(f"{self.name}.{spec.index}")
            if self.sandboxes is not None:
                self.sandboxes.end(spec.index)
        calls = sum(call.program == spec.index for call in self.calls[before:])
        self.programs.append(running.row(began, self.now(), calls))

    def _start(self, running: _Running, program: Program, trail: Trail | None) -> asyncio.Task[Any]:
        task = asyncio.create_task(self._task(running, program, Line(trail)))
        running.tasks.add(task)
        task.add_done_callback(running.tasks.discard)
        task.add_done_callback(lambda _: program.close())  # one that was cancelled before it began
        return task

    async def _task(self, running: _Running, program: Program, line: Line) -> Any:
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
                resume, value = program.send, await self._effect(running, effect, line)
            except TimedOut as late:
                resume, value = program.throw, late
            except asyncio.CancelledError:
                running.cancel(program)
                raise

    async def _effect(self, running: _Running, effect: Effect, line: Line) -> Any:
        match effect:
            case CallEffect():
                line.passed(await self._call(running, effect))
                line.last = effect.thread, effect.index
                return None
            case ToolEffect():
                self._leaves(running, line, effect.name)
                if self.sandboxes is not None:
                    await self.sandboxes.ready(running.spec.index)
                took = await self._sleep(running.seconds(effect.work_s))
                running.tool_s += took
                return line.passed(tool_s=took)
            case ThinkEffect():
                self._leaves(running, line, PERSON)
                took = await self._sleep(running.seconds(effect.seconds))
                running.think_s += took
                return line.passed(think_s=took)
            case JoinEffect():
                return await self._join(running, effect.programs, line)
            case SpawnEffect():
                return self._spawn(running, effect.program, line)
            case CancelEffect():
                effect.task.driver_state.cancel()
                return None
            case TimeoutEffect():
                return await self._timeout(running, effect, line)
            case AbandonEffect():
                running.ends(line)
                return await _abandon(running)
        raise running.fail(f"awaited {effect!r}; await effects of its session only")

    def _leaves(self, running: _Running, line: Line, tool: str) -> None:
        """A thread goes into a tool, or to a person."""
        if self.away is not None and line.last is not None:
            self.away(f"{self.name}.{running.spec.index}", *line.last, tool)

    async def _sleep(self, seconds: float) -> float:
        """Wait, and how much of it is the program's: waking late is the client's doing."""
        began = self.now()
        await asyncio.sleep(0)  # even no time at all is a turn for the others
        await sleep_until(self.origin + began + seconds)
        return min(seconds, self.now() - began)

    async def _join(self, running: _Running, programs: Sequence[Program], line: Line) -> list[Any]:
        lines = [Line(line.trail) for _ in programs]
        running.threads += len(programs)
        pairs = zip(programs, lines, strict=True)
        results = await _all([self._task(running, program, own) for program, own in pairs])
        line.joined(lines)
        return results

    def _spawn(self, running: _Running, program: Program, line: Line) -> Handle:
        handle = Handle()
        running.threads += 1
        task = self._start(running, program, line.trail)
        task.add_done_callback(lambda _: setattr(handle, "done", True))
        handle.driver_state = task
        return handle

    async def _timeout(self, running: _Running, effect: TimeoutEffect, line: Line) -> Any:
        own = Line(line.trail)
        try:
            async with asyncio.timeout(running.seconds(effect.seconds)):
                result = await self._task(running, effect.program, own)
        except TimeoutError:
            raise TimedOut(f"no result within {effect.seconds} s") from None
        line.trail = own.trail
        return result

    # -- calls -------------------------------------------------------------------------

    async def _call(self, running: _Running, effect: CallEffect) -> str:
        """Make a call; its name."""
        asking = Asking.of(running, effect, self.name, self.cache_salt, self.now())
        given = self.now()
        try:
            answer = await self._answer(asking.request)
        except asyncio.CancelledError:
            self.calls.append(asking.cut(given, self.now()))
            raise
        running.texts.replied(effect.output_id, answer.tokens)
        self.calls.append(asking.answered(answer, self.origin))
        return asking.request.name

    async def _answer(self, request: Request) -> Response:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self.client.complete(request)
        except CallFailed:
            self.watch()
            raise
        finally:
            self.open -= 1


async def _all(coroutines: Sequence[Any]) -> list[Any]:
    """Run concurrently; if one fails, the others are cancelled and its error is raised."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _settled(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait for all; a cancelled one is no error. Raises what the first of them raised."""
    done, _ = await asyncio.wait(set(tasks), return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _abandon(running: _Running) -> None:
    """The client leaves: every task of the program is cancelled, this one too."""
    running.abandoned = True
    for task in list(running.tasks):
        task.cancel()
    await asyncio.Future()
