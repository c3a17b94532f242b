"""The process in which agents run: ``python -m workloads.agents.host`` (contract: ``workloads.agents.job``).

It leaves when its job is done, at the end of its standard input, on SIGTERM or SIGINT, and when its parent is
gone; sandboxes are torn down each time. Exit codes: 0 it said ``over``, 1 it said ``failed``, 2 there was no
job to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import platform
import select
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Coroutine
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from workloads.agents import catalog
from workloads.agents.contract import Agent, Suite
from workloads.agents.events import Events, claim_stdout
from workloads.agents.job import Job
from workloads.agents.programs import Programs
from workloads.agents.remains import remains
from workloads.base import WorkloadError
from workloads.sandboxes import catalog as kinds
from workloads.sandboxes.contract import SandboxKind
from workloads.sandboxes.processes import adopt

GRACE_S = 25.0
"""Told to leave, it is gone by then, whatever hangs; what ``programs`` allows for fits in."""
LINGER_S = 2.0
"""Threads that guests left behind may hold us up so long after the last event."""
_LOOK_S = 0.5
INSTALL = (
    "build the extra's environment (bash scripts/make_agents.sh) or name its Python in BENCH_AGENTS_PYTHON"
)


class HostFailed(Exception):
    """The host cannot go on: why, and what would help, in a line."""


class Leaving:
    """Told once, it stays told: ``asked`` is set in the loop, and a clock runs against what hangs there."""

    def __init__(self, late: Callable[[], None]) -> None:
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._late = late
        self._once = threading.Lock()

    def ask(self, *_: object) -> None:
        """From any thread, or as a handler of signals."""
        if not self._once.acquire(blocking=False):
            return
        after(GRACE_S, self._late)
        with contextlib.suppress(RuntimeError):  # the loop is closed: we have left
            self._loop.call_soon_threadsafe(self.asked.set)


def after(seconds: float, do: Callable[[], None]) -> None:
    """In a thread, which nobody waits for."""
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


def watch(fd: int, parent: int, gone: Callable[[], None]) -> None:
    """Call ``gone`` at the end of ``fd``, or when the process ``parent`` is no longer ours."""

    def look() -> None:
        while os.getppid() == parent:
            if select.select([fd], [], [], _LOOK_S)[0] and not os.read(fd, 4096):
                break
        gone()

    threading.Thread(target=look, daemon=True, name="parent").start()


def read_line(fd: int) -> str:
    """The first line; nothing after it is taken from ``fd``."""
    read = bytearray()
    while not read.endswith(b"\n") and (byte := os.read(fd, 1)):
        read += byte
    return read.decode()


def found(job: Job) -> tuple[Agent, Suite, SandboxKind | None]:
    """What the job names. Raises HostFailed."""
    try:
        agent = catalog.agent(job.agent, job.parameters)
        suite = catalog.suite_of(agent, job.suite)
        kind = sandbox_kind(job.sandbox) if suite.needs_sandbox else None
    except WorkloadError as error:
        raise HostFailed(str(error)) from None
    if why := suite.missing(_data(job)):
        raise HostFailed(f"suite {suite.name}: {why}")
    if kind is not None and (why := kind.missing()):
        raise HostFailed(f"sandbox {kind.name}: {why}")
    return agent, suite, kind


def sandbox_kind(name: str) -> SandboxKind:
    """The kind called ``name`` or ``pkg.mod:NAME``. Raises WorkloadError."""
    try:
        if ":" not in name:
            return kinds.sandbox_kind(name)
        module, _, attribute = name.partition(":")
        return cast(SandboxKind, getattr(importlib.import_module(module), attribute))
    except (kinds.UnknownName, ImportError, AttributeError) as error:
        raise WorkloadError(f"sandbox {name}: {error}") from None


def prepare(agent: Agent, folder: Path) -> dict[str, str]:
    """Import what the agent needs, which takes seconds, before the first program begins; its versions.

    An agent may have ``environment(folder)``: variables that its modules read, and a folder that is theirs;
    and ``warm()``: what else it would otherwise do in the first program's time.
    """
    os.environ.update(getattr(agent, "environment", lambda _: {})(folder))
    for module in agent.needs:
        try:
            importlib.import_module(module)
        except ImportError as error:
            lacking = f"agent {agent.name} needs {module}, which {sys.executable} does not have"
            raise HostFailed(f"{lacking} ({error}): {INSTALL}") from None
    getattr(agent, "warm", lambda: None)()
    return {"python": platform.python_version(), **versions(agent.needs)}


def versions(modules: tuple[str, ...]) -> dict[str, str]:
    """Of the distributions that have these modules."""
    owners = metadata.packages_distributions() if modules else {}
    named = {name for module in modules for name in owners.get(module.partition(".")[0], ())}
    return {name: metadata.version(name) for name in sorted(named)}


def _data(job: Job) -> Path | None:
    return Path(job.data) if job.data else None


async def serve(job: Job, events: Events, fd: int, parent: int) -> None:
    """Until the job is done or we are told to leave. Raises HostFailed."""
    adopt()
    leaving = Leaving(lambda: leave_now(job, events))
    events.lost = leaving.ask
    watch(fd, parent, leaving.ask)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leaving.ask)  # not of the loop: an agent that blocks it is left, too
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix="agent-", dir=folder))
    try:
        agent, suite, kind = found(job)
        facts = prepare(agent, own)
        tasks = suite.tasks(job.n, job.seed, _data(job))
        programs = Programs(job, agent, tasks, kind, events)
        events.say("ready", versions=facts)
        await _until(programs.run(), leaving.asked)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    after(LINGER_S, lambda: os._exit(0))
    events.say("over", leaks=await remains(folder, job.owner, programs.ports, kind))


async def _until(run: Coroutine[Any, Any, None], asked: asyncio.Event) -> None:
    """The run, or as much of it as there is until ``asked``."""
    running = asyncio.ensure_future(run)
    told = asyncio.ensure_future(asked.wait())
    await asyncio.wait([running, told], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def leave_now(job: Job, events: Events) -> None:
    """What hangs is left behind; sandboxes are not."""
    with contextlib.suppress(Exception):
        sandbox_kind(job.sandbox).sweep(job.owner)
    events.say("failed", why=f"something did not end within {GRACE_S:g} s of being told to")
    os._exit(1)


def main() -> int:
    """See above."""
    events, fd, parent = Events(claim_stdout()), os.dup(0), os.getppid()
    try:
        job = Job.of(read_line(fd))
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)  # tools and guests must not read our orders
    except (ValueError, TypeError) as error:
        events.say("failed", why=f"the first line of standard input is no job: {error}")
        return 2
    try:
        asyncio.run(serve(job, events, fd, parent))
    except HostFailed as error:
        events.say("failed", why=str(error))
        return 1
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        events.say("failed", why=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a guest's modules take seconds to be taken apart
