"""An agent host as a process of ours: it is started, heard, and never outlives us."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import workloads
from workloads.agents.contract import Agent
from workloads.agents.host import GRACE_S, INSTALL, sandbox_kind
from workloads.agents.job import Job

ROOT = Path(workloads.__file__).parents[1]
PYTHON = "BENCH_AGENTS_PYTHON"
FOLDER = ".venv-agents"
_LINE = 1 << 24
"""Bytes of the longest event that is read."""
_LAST_WORDS = 300


class HostGone(RuntimeError):
    """The host could not be started, failed, or ended before its job did: why."""


def find_python(agent: Agent) -> str:
    """The Python in which the agent runs: this one if it has what the agent needs, else that of
    BENCH_AGENTS_PYTHON, else ``.venv-agents`` of the working folder or of the project. Raises HostGone."""
    if all(map(_installed, agent.needs)):
        return sys.executable
    if named := os.environ.get(PYTHON, ""):
        if not os.access(named, os.X_OK):
            raise HostGone(f"{PYTHON} is {named}, which is no program")
        return named
    for folder in (Path.cwd(), ROOT):
        if os.access(python := folder / FOLDER / "bin" / "python", os.X_OK):
            return str(python)
    raise HostGone(f"agent {agent.name} needs {', '.join(agent.needs)}: {INSTALL}")


def _installed(name: str) -> bool:
    """A folder that only happens to be called so has no origin."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    return spec is not None and spec.origin is not None


class HostProcess:
    """``async with`` starts it; ``events`` are what it says; leaving the block stops it.

    ``log`` gets its standard error, with what agents and tools print. ``python``: which runs it, "" this
    one. ``environment``: variables beside ours. ``search_path``: folders from which ``pkg.mod:NAME`` can be
    imported. It leads a session of its own, so that Ctrl-C reaches us alone. The end of its standard input
    tells it to leave: it ends with us even if we are killed.
    """

    def __init__(
        self,
        job: Job,
        log: Path,
        *,
        python: str = "",
        environment: Mapping[str, str] = {},
        search_path: Sequence[str] = (),
    ) -> None:
        self.job = job
        self.log = log
        self.leaks: list[str] | None = None
        """What ``over`` said; None before."""
        self._python = python or sys.executable
        self._environment = environment
        self._search_path = search_path
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Future[None] | None = None
        self._heard: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        """Raises HostGone."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    self._python, "-u", "-m", "workloads.agents.host", stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE, stderr=log, limit=_LINE, env=self._variables(),
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise HostGone(f"agent host: cannot start {self._python}: {error}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._reading = asyncio.ensure_future(self._read(self._process.stdout))
        self._process.stdin.write(self.job.line().encode() + b"\n")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        """0 if it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Until ``over``, the last. Raises HostGone if it says ``failed``, or ends without either."""
        if self._process is None:
            raise HostGone("agent host: it is not running")
        while (event := await self._heard.get()) is not None:
            if event["event"] == "failed":
                raise HostGone(f"agent host: {event['why']}")
            yield event
            if event["event"] == "over":
                return
        self._heard.put_nowait(None)
        code = "" if self._process is None else f" (exit code {await self._process.wait()})"
        raise HostGone(f"agent host: it ended{code}; {self.words()}")

    def words(self) -> str:
        """The last line of its log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            if said := [line.strip() for line in lines if line.strip()]:
                return f"{said[-1][:_LAST_WORDS]} ({self.log})"
        return f"it said nothing ({self.log})"

    async def stop(self, limit_s: float = GRACE_S + 5.0) -> None:
        """Tell it to tear down and leave, wait for that, in the end kill it; idempotent.

        Of one that did not get to it itself, sandboxes are torn down by us.
        """
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), limit_s)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # its session: what guests started is in it
            await process.wait()
            if self._reading is not None:
                await self._reading
            if self.leaks is None:
                self._sweep()

    async def _read(self, lines: asyncio.StreamReader) -> None:
        """Until it closes, whether somebody listens or not: a full pipe would hold it up."""
        with contextlib.suppress(ValueError):  # half a line: it was killed
            while line := await lines.readline():
                event = json.loads(line)
                if event["event"] == "over":
                    self.leaks = event["leaks"]
                self._heard.put_nowait(event)
        self._heard.put_nowait(None)

    def _sweep(self) -> None:
        with contextlib.suppress(Exception):
            sandbox_kind(self.job.sandbox).sweep(self.job.owner)

    def _variables(self) -> dict[str, str]:
        mine = dict(os.environ) | dict(self._environment)
        path = [str(ROOT), *self._search_path, *filter(None, [mine.get("PYTHONPATH")])]
        here = ",".join(filter(None, [mine.get("NO_PROXY"), "127.0.0.1", "localhost"]))
        return {**mine, "PYTHONPATH": os.pathsep.join(path), "NO_PROXY": here, "no_proxy": here}
