"""The live driver: the same programs as on virtual time, against a real server, in one asyncio process.

Programs arrive at their scheduled times whatever the server does (open loop), and their latency counts
from there. Tools and people are sleeps; a tool has a core of its own. Times are seconds since the run began.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.drivers.audit import Audit, LoopWatch
from bench.drivers.calls import CallFailed, Chunks, Client, Request, Response
from bench.drivers.delivered import Delivered
from bench.drivers.effects import LONGEST, ProgramError
from bench.drivers.live_records import Leg, LiveCall, LiveProgram, LiveRun, Trail
from bench.drivers.loop import sleep_until
from bench.drivers.token_ids import Texts, TokenIds
from workloads.base import ProgramSpec
from workloads.session import (
    AbandonEffect,
    CallEffect,
    CancelEffect,
    Cancelled,
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

__all__ = ["drive_live"]


async def drive_live(
    specs: Sequence[ProgramSpec],
    times: Sequence[float],
    client: Client,
    ids: TokenIds,
    *,
    run: str = "run",
    cache_salt: str = "",
    watch: Callable[[], None] = lambda: None,
    over: Callable[[str], None] = lambda _: None,
) -> LiveRun:
    """Run every program to its end; ``times[i]`` is when ``specs[i]`` arrives (seconds from now).

    ``run`` names calls in the server's logs: RUN.PROGRAM.THREAD.INDEX. ``watch`` is asked when a call
    fails, and may raise something better (the server has died); ``over`` hears the ``program_id`` of each
    program that is over. Raises CallFailed or ProgramError at the first call or program that fails: nothing
    is dropped silently.
    """
    driver = LiveDriver(client, ids, run, cache_salt, watch, over)
    return await driver.run(specs, times)


class _Line:
    """A coroutine of a program while it runs: ``trail`` is what it went through."""

    def __init__(self, trail: Trail | None) -> None:
        self.trail = trail
        self.ended = 0

    def passed(self, name: str = "", tool_s: float = 0.0, think_s: float = 0.0) -> None:
        """A call was answered, or a tool or a person is done."""
        self.trail = Trail(self.trail, Leg(name, tool_s, think_s))


class _Running:
    """A program that runs: its texts, its open tasks, and the coroutine that ended last."""

    def __init__(self, spec: ProgramSpec, scheduled: float, ids: TokenIds) -> None:
        self.spec = spec
        self.scheduled: float | None = scheduled  # until its first call is sent
        self.texts = Texts(ids)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.abandoned = False
        self.threads = 1
        self.tool_s = self.think_s = 0.0
        self.ended = 0
        self.last = _Line(None)

    def ends(self, line: _Line) -> None:
        """``line`` is over, later than all that were before."""
        self.ended += 1
        line.ended, self.last = self.ended, line

    def fail(self, what: str) -> ProgramError:
        return ProgramError(f"program {self.spec.index} ({self.spec.kind}) {what}")


class LiveDriver:
    """State of one run; use ``drive_live``."""

    def __init__(
        self, client: Client, ids: TokenIds, run: str, cache_salt: str,
        watch: Callable[[], None], over: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.client = client
        self.ids = ids
        self.name = run
        self.cache_salt = cache_salt
        self.watch = watch
        self.over = over
        self.origin = 0.0
        self.calls: list[LiveCall] = []
        self.programs: list[LiveProgram] = []
        self.open = 0
        self.most_open = 0

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.origin

    async def run(self, specs: Sequence[ProgramSpec], times: Sequence[float]) -> LiveRun:
        """Send them all off and wait for the last one."""
        self.origin, cpu = time.monotonic(), time.process_time()
        wall = time.time()
        async with LoopWatch() as watch:
            await _all([self._program(s, t) for s, t in zip(specs, times, strict=True)])
        took = self.now()
        lags = [call.t_send - call.t_sched for call in self.calls]
        delivered = Delivered.of(*self._arrivals())
        audit = Audit.of(lags, watch.lags, (time.process_time() - cpu) / took, self.most_open, delivered)
        self.programs.sort(key=lambda row: row.program)
        return LiveRun(self.name, wall, took, self.programs, self.calls, audit, self.origin)

    def _arrivals(self) -> tuple[list[float], list[float]]:
        """When each program's first call was due, and when it was sent; in order of sending."""
        first: dict[int, LiveCall] = {}
        for call in sorted(self.calls, key=lambda call: call.t_send):
            first.setdefault(call.program, call)
        return [call.t_sched for call in first.values()], [call.t_send for call in first.values()]

    # -- programs ----------------------------------------------------------------------

    async def _program(self, spec: ProgramSpec, scheduled: float) -> None:
        await sleep_until(self.origin + scheduled)
        running, began, before = _Running(spec, scheduled, self.ids), self.now(), len(self.calls)
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
        self.programs.append(self._row(running, scheduled, began, before))

    def _row(self, running: _Running, scheduled: float, began: float, before: int) -> LiveProgram:
        spec, trail = running.spec, running.last.trail
        return LiveProgram(
            spec.index, spec.kind, scheduled, began, self.now(),
            "abandoned" if running.abandoned else "finished",
            sum(call.program == spec.index for call in self.calls[before:]),
            running.threads, running.tool_s, running.think_s, () if trail is None else trail.walk(),
        )  # fmt: skip

    def _start(self, running: _Running, program: Program, trail: Trail | None) -> asyncio.Task[Any]:
        task = asyncio.create_task(self._task(running, program, _Line(trail)))
        running.tasks.add(task)
        task.add_done_callback(running.tasks.discard)
        return task

    async def _task(self, running: _Running, program: Program, line: _Line) -> Any:
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
                _cancel(running, program)
                raise

    async def _effect(self, running: _Running, effect: Effect, line: _Line) -> Any:
        match effect:
            case CallEffect():
                line.passed(await self._call(running, effect))
                return None
            case ToolEffect():
                took = await self._sleep(_seconds(running, effect.work_s))
                running.tool_s += took
                return line.passed(tool_s=took)
            case ThinkEffect():
                took = await self._sleep(_seconds(running, effect.seconds))
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

    async def _sleep(self, seconds: float) -> float:
        """Wait, and how much of it is the program's: waking late is the client's doing."""
        began = self.now()
        await asyncio.sleep(seconds)
        return min(seconds, self.now() - began)

    async def _join(self, running: _Running, programs: Sequence[Program], line: _Line) -> list[Any]:
        lines = [_Line(line.trail) for _ in programs]
        running.threads += len(programs)
        pairs = zip(programs, lines, strict=True)
        results = await _all([self._task(running, program, own) for program, own in pairs])
        line.trail = max(lines, key=lambda own: own.ended, default=line).trail
        return results

    def _spawn(self, running: _Running, program: Program, line: _Line) -> Handle:
        handle = Handle()
        running.threads += 1
        task = self._start(running, program, line.trail)
        task.add_done_callback(lambda _: setattr(handle, "done", True))
        handle.driver_state = task
        return handle

    async def _timeout(self, running: _Running, effect: TimeoutEffect, line: _Line) -> Any:
        own = _Line(line.trail)
        try:
            async with asyncio.timeout(_seconds(running, effect.seconds)):
                result = await self._task(running, effect.program, own)
        except TimeoutError:
            raise TimedOut(f"no result within {effect.seconds} s") from None
        line.trail = own.trail
        return result

    # -- calls -------------------------------------------------------------------------

    async def _call(self, running: _Running, effect: CallEffect) -> str:
        """Make a call; its name."""
        ready, program = self.now(), running.spec.index
        scheduled, running.scheduled = running.scheduled, None
        try:
            prompt = running.texts.prompt(effect.prompt)
        except ValueError as error:
            raise running.fail(str(error)) from None
        name = f"{self.name}.{program}.{effect.thread.replace('.', '_')}.{effect.index}"
        caller = {"program_id": f"{self.name}.{program}", "thread_id": effect.thread}
        request = Request(name, prompt, effect.output_tokens, caller, self.cache_salt)
        due = ready if scheduled is None else scheduled
        asked = (program, effect.thread, effect.index, name, ready, due)
        given = self.now()
        try:
            answer = await self._answer(request)
        except asyncio.CancelledError:
            self.calls.append(
                LiveCall(*asked, given, math.nan, self.now(), len(prompt), (), "cut", effect.parents)
            )
            raise
        running.texts.replied(effect.output_id, answer.tokens)
        sent, first, last = (at - self.origin for at in (answer.t_send, answer.t_first, answer.t_last))
        chunks = Chunks((at - self.origin, n) for at, n in answer.chunks)
        self.calls.append(
            LiveCall(
                *asked, sent, first, last, len(prompt), answer.tokens, parents=effect.parents, chunks=chunks
            )
        )
        return name

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


def _seconds(running: _Running, seconds: float) -> float:
    if isinstance(seconds, int | float) and 0.0 <= seconds < LONGEST:
        return seconds
    raise running.fail(f"waits for {seconds!r} s; it must be a number of seconds from 0 to {LONGEST:.0f}")


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


def _cancel(running: _Running, program: Program) -> None:
    """Raise Cancelled in a coroutine, which must end."""
    try:
        program.throw(Cancelled())
    except (Cancelled, StopIteration):
        return
    except BaseException as error:
        raise running.fail(f"raised {type(error).__name__}: {error}") from error
    program.close()
    raise running.fail("went on after it was cancelled: a cancelled task must end")
