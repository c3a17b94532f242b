"""One program after another: a task's sandbox, its tools, the agent's run, and whether it was solved."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from workloads.agents.chat import HttpChat
from workloads.agents.contract import Agent, AgentError, BudgetUsed, Task, Told, Toolbox, Verdict
from workloads.agents.events import Events
from workloads.agents.job import Job
from workloads.agents.timed_tools import TimedTools, ToolLog
from workloads.sandboxes.contract import Sandbox, SandboxError, SandboxEvent, SandboxKind, SandboxOptions
from workloads.sandboxes.shared import SharedSandboxes

T = TypeVar("T")
CHECK_S = 120.0
"""Whether a task was solved is known by then."""
HEED_S = 2.0
"""An agent that is ended is through with it by then, or is left behind."""
TEARDOWN_S = 15.0
"""A sandbox is gone by then, retries and all, or it is a leak."""
_WORD = re.compile(r"[^A-Za-z0-9]+")
_MOST = 40
"""Characters of a run's name in those of its sandboxes: the last ones, by which runs differ."""
STOPPED = "the host was told to stop"
PHASES = {
    "init": "setup", "share": "setup", "unshare": "teardown", "teardown": "teardown", "retry": "teardown",
    "leak": "teardown",
}  # fmt: skip
"""Of sandbox events that always are in one."""
_CHECKING: ContextVar[bool] = ContextVar("checking", default=False)
"""Whether it is the check that uses a sandbox: of the task that runs it, as several may share one."""


class Ended(NamedTuple):
    """How a program ended; ``time``: of CLOCK_MONOTONIC (s), when its agent was through."""

    outcome: str
    success: bool
    why: str
    time: float


@dataclass
class Programs:
    """Runs the tasks of a job, each as the program of its number. ``kind``: of sandboxes, None without."""

    job: Job
    agent: Agent
    tasks: Sequence[Task]
    kind: SandboxKind | None
    events: Events
    clock: Callable[[], float] = time.monotonic
    ports: set[int] = field(default_factory=set, init=False)
    """That sandboxes were dealt."""
    _pool: SharedSandboxes = field(default_factory=SharedSandboxes, init=False)

    async def run(self) -> None:
        """All of them, ``job.concurrency`` at all times. Cancelled, it tears everything down first."""
        numbers = iter(range(len(self.tasks)))

        async def work() -> None:
            for number in numbers:
                await self._program(number)

        await _all([work() for _ in range(min(self.job.concurrency, len(self.tasks)))])

    async def _program(self, number: int) -> None:
        """One, from its sandbox to its end. Whatever it raises is about it alone."""
        task, told = self.tasks[number], Told()
        self.events.say("began", self.clock(), program=number, task=task.name)
        sandbox: Sandbox | None = None
        ended: Ended | None = None
        try:
            sandbox = self._sandbox(number, task)
            ended = await self._attempt(number, task, sandbox, told)
        except Exception as error:  # no sandbox: its folder, its options
            ended = Ended(*_failure(error), self.clock())
        finally:
            ended = ended or Ended("failed", False, STOPPED, self.clock())
            self.events.say(
                "ended", ended.time, program=number, outcome=ended.outcome, success=ended.success,
                why=ended.why, notes=told.notes,
            )  # fmt: skip
            if sandbox is not None:
                await _teardown(sandbox)
            if self.kind is not None and self.job.share == 1:
                with contextlib.suppress(OSError):  # whatever is in there is a leak, and stays to be seen
                    self._folder(number).rmdir()

    async def _attempt(self, number: int, task: Task, sandbox: Sandbox | None, told: Told) -> Ended:
        """Its time is that of the agent's last step: a check is ours, not the program's."""
        log = ToolLog(lambda *ran: self._tool(number, *ran))
        told.tool = log.tell

        async def solve() -> tuple[Toolbox, list[str]]:
            if sandbox is not None:
                await sandbox.init()
            tools = task.toolbox(sandbox)
            timed = TimedTools(tools, log, self.job.budget.tool_s, sandbox, self.clock)
            return tools, await self._run(number, task, timed, told)

        try:
            tools, answers = await within(self.job.budget.seconds, solve())
            at = self.clock()
        except Exception as error:
            return Ended(*_failure(error), self.clock())
        finally:
            log.flush()
        verdict = await self._check(task, tools, answers)
        return Ended("finished", verdict.success, verdict.why, at)

    async def _run(self, number: int, task: Task, tools: TimedTools, told: Told) -> list[str]:
        async with HttpChat(self.job.url, number, self.job.model, self.job.key) as chat:
            try:
                return await self.agent.run(task, chat, tools, self.job.budget, told)
            except SystemExit as error:  # it would end the loop, and all other programs with it
                raise AgentError(f"the agent left with {error.code!r}") from None

    async def _check(self, task: Task, tools: Toolbox, answers: Sequence[str]) -> Verdict:
        """A check that breaks has not found the task solved."""
        before = _CHECKING.set(True)
        try:
            async with asyncio.timeout(CHECK_S):
                return await task.check(tools, answers)
        except TimeoutError:
            return Verdict(False, f"the check took more than {CHECK_S:g} s")
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return Verdict(False, f"the check broke: {_line(error)}")
        finally:
            _CHECKING.reset(before)

    def _sandbox(self, number: int, task: Task) -> Sandbox | None:
        """It is not there yet, but its folder is (that of a shared one is made with it)."""
        kind = self.kind
        if kind is None:
            return None
        folder = self._folder(number // self.job.share)
        options = SandboxOptions(folder.name, folder, owner=self.job.owner, **self.job.limits)

        def told(event: SandboxEvent) -> None:
            self._happened(number, event)

        if self.job.share > 1:
            make = partial(kind.make, options, told)
            return self._pool.share(folder.name, f"program-{number}", make, task.files, told)
        folder.mkdir(parents=True)
        return kind.make(replace(options, files=task.files), told)

    def _folder(self, number: int) -> Path:
        """Its name is the sandbox's, too."""
        run = _WORD.sub("-", self.job.owner)[-_MOST:].strip("-") or "agents"
        return Path(self.job.folder) / f"{run}-{number}"

    def _happened(self, number: int, event: SandboxEvent) -> None:
        self.ports.update(event.ports)
        phase = PHASES.get(event.what) or ("check" if _CHECKING.get() else "run")
        self.events.say("sandbox", event.time, program=number, phase=phase, **event._asdict())

    def _tool(self, number: int, thread: str, name: str, begin: float, end: float, ok: bool) -> None:
        self.events.say("tool", begin, program=number, thread=thread, name=name, t_end=end, ok=ok)


async def within(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """What it returns or raises; BudgetUsed if that takes longer, whether it heeds being cancelled or not."""
    going = asyncio.ensure_future(coroutine)
    try:
        await asyncio.wait([going], timeout=seconds)
        if going.done():
            return going.result()
        raise BudgetUsed(f"it took more than {seconds:g} s")
    finally:
        if not going.done():
            going.cancel()
            await asyncio.wait([going], timeout=HEED_S)


def _failure(error: BaseException) -> tuple[str, bool, str]:
    """(outcome, success, why) of a program that raised this."""
    if isinstance(error, BudgetUsed):
        return "timeout", False, str(error)
    if isinstance(error, AgentError | SandboxError):
        return "failed", False, str(error)
    traceback.print_exception(error, file=sys.stderr)
    return "failed", False, _line(error)


async def _all(coroutines: Sequence[Any]) -> None:
    """Like a TaskGroup, but one that fails takes down the others only after they have torn down."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _teardown(sandbox: Sandbox) -> None:
    """Whether we are told to leave meanwhile or not. What stays all the same is found as a leak."""
    going = asyncio.ensure_future(asyncio.wait_for(sandbox.teardown(), TEARDOWN_S))
    cancelled = False
    while not going.done():
        try:
            await asyncio.wait([going])
        except asyncio.CancelledError:
            cancelled = True
    if (error := going.exception()) is not None:
        print(f"sandbox {sandbox.name}: {_line(error)}", file=sys.stderr)
    if cancelled:
        raise asyncio.CancelledError


def _line(error: BaseException) -> str:
    """What was raised, in a line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
