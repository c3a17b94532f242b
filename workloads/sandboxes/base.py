"""What every kind of sandbox does alike: its entry in the ledger, its events, a teardown that is retried."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import NoReturn

from workloads.sandboxes.contract import Executed, SandboxError, SandboxEvent, SandboxOptions
from workloads.sandboxes.folders import remove_folder
from workloads.sandboxes.guard import watch
from workloads.sandboxes.ledger import Entry, Ledger
from workloads.sandboxes.processes import NAME, OWNER, Process
from workloads.sandboxes.threads import in_thread

BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Waits between the tries of a teardown: seven in all, within 4 s and what they take themselves."""
PORTS = "BENCH_PORTS"
"""In a tool's environment: the ports that its sandbox was dealt, separated by blanks."""
TIMEOUT, DISK_FULL = "timeout", "disk full"
NO_SPACE = "No space left on device"
_GIT = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "agent"), ("EMAIL", "agent@localhost"))
}
"""Without a name git does not commit."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")

Told = Callable[[SandboxEvent], None]


class BaseSandbox(ABC):
    """A sandbox of a kind (``Sandbox``). ``sleep`` waits between tries; a test gives its own."""

    kind = ""

    def __init__(
        self, options: SandboxOptions, told: Told, *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        if not _NAME.fullmatch(options.name):
            raise SandboxError(
                f"sandbox name {options.name!r}: at most 63 letters, digits and hyphens, no hyphen first"
            )
        self.options = options
        self.name = options.name
        self.ports: tuple[int, ...] = ()
        self._told, self._sleep = told, sleep
        self._ledger = Ledger()
        self._entered = False
        self._ready = False
        self._tearing = asyncio.Lock()
        self._execs = 0

    @abstractmethod
    async def _make(self) -> None:
        """Make it ready, its files in the workspace. What it made when it fails, ``_remove`` removes."""

    @abstractmethod
    async def _run(
        self, command: str, timeout_s: float, stdin: str, cwd: str, mark: str
    ) -> tuple[Executed, bool]:
        """And whether the disk was full afterwards. Raises SandboxError."""

    @abstractmethod
    async def _disk(self) -> int:
        """Bytes. Raises SandboxError."""

    @abstractmethod
    async def _remove(self) -> None:
        """All but the folder; idempotent. Raises SandboxError or OSError if something stays."""

    async def init(self) -> None:
        """See Sandbox."""
        begin = time.monotonic()
        try:
            self._enter()
            await self._make()
        except BaseException as error:
            with contextlib.suppress(SandboxError):
                await asyncio.shield(self.teardown())
            self._say(begin, "init", ok=False, detail=reason(error))
            if isinstance(error, OSError):
                raise SandboxError(f"sandbox {self.name} ({self.kind}): {error}") from None
            raise
        self._ready = True
        seconds = time.monotonic() - begin
        self._say(begin, "init", seconds, disk=await self._disk_or_unknown())

    async def exec(
        self, command: str, *, timeout_s: float = 60.0, stdin: str = "", cwd: str = ""
    ) -> Executed:
        """See Sandbox."""
        self._must_be_ready()
        self._execs += 1
        begin, mark = time.monotonic(), f"{self.name}.{self._execs}"
        try:
            done, full = await self._run(command, timeout_s, stdin, cwd, mark)
        except BaseException as error:
            self._say(begin, "exec", ok=False, detail=reason(error))
            raise
        detail = outcome(done, full)
        self._say(begin, "exec", done.seconds, ok=detail not in (TIMEOUT, DISK_FULL), detail=detail)
        if done.timed_out:
            self._say(begin + timeout_s, "kill", max(0.0, done.seconds - timeout_s), detail="hung")
        return done

    async def disk(self) -> int:
        """See Sandbox."""
        self._must_be_ready()
        return await self._disk()

    async def teardown(self) -> None:
        """See Sandbox. Tried again after ``BACKOFF_S``; cancelled, it still goes on to its end."""
        await asyncio.shield(self._tear_down())

    async def _tear_down(self) -> None:
        async with self._tearing:
            if not self._entered:
                return
            disk = await self._disk_or_unknown() if self._ready else -1
            was_ready, self._ready = self._ready, False
            begin, waits = time.monotonic(), iter(BACKOFF_S)
            while True:
                tried = time.monotonic()
                try:
                    await self._try_teardown()
                    break
                except (SandboxError, OSError) as error:
                    wait = next(waits, None)
                    if wait is None:
                        self._give_up(begin, error)
                    self._say(tried, "retry", ok=False, detail=reason(error))
                    await self._sleep(wait)
            if was_ready:
                self._say(begin, "teardown", disk=disk)
            self.ports = ()

    async def _try_teardown(self) -> None:
        await self._remove()
        await in_thread(remove_folder, self.options.folder)
        self._ledger.leave(self.name)
        self._entered = False

    def _give_up(self, begin: float, error: Exception) -> NoReturn:
        self._say(begin, "leak", ok=False, detail=reason(error))
        raise SandboxError(
            f"sandbox {self.name} ({self.kind}): something of it stays: {error}; the next start tries again"
        ) from None

    def _enter(self) -> None:
        if self._entered:
            raise SandboxError(f"sandbox {self.name}: it is there already")
        o = self.options
        if o.folder.exists() and any(o.folder.iterdir()):
            raise SandboxError(f"sandbox {self.name}: its folder is not empty: {o.folder}")
        watch(self._ledger.folder)
        entry = Entry(
            self.name, self.kind, o.owner, str(o.folder.resolve()), Process.this(), self._container()
        )
        self.ports = self._ledger.enter(entry, o.ports).ports
        self._entered = True
        o.folder.mkdir(parents=True, exist_ok=True)

    def _container(self) -> str:
        return ""

    def _environment(self, scratch: str) -> dict[str, str]:
        """Of its tools: nothing of ours but what the options say, so no key of ours is seen."""
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
            "HOME": scratch, "TMPDIR": scratch, "USER": "agent", **_GIT,
            PORTS: " ".join(map(str, self.ports)), **self.options.environment,
            NAME: self.name, OWNER: self.options.owner,
        }  # fmt: skip

    def _must_be_ready(self) -> None:
        if not self._ready:
            raise SandboxError(
                f"sandbox {self.name} ({self.kind}): it is not there: torn down, or never made"
            )

    async def _disk_or_unknown(self) -> int:
        try:
            return await self._disk()
        except SandboxError:
            return -1

    def _say(
        self, begin: float, what: str, seconds: float | None = None, *, ok: bool = True, disk: int = -1,
        detail: str = "",
    ) -> None:  # fmt: skip
        took = time.monotonic() - begin if seconds is None else seconds
        self._told(SandboxEvent(begin, self.name, what, took, ok, disk, self.ports, detail))


def outcome(done: Executed, full: bool) -> str:
    """What came of a command, in two words. ``full``: no block of the disk is free afterwards."""
    if done.timed_out:
        return TIMEOUT
    if full + (NO_SPACE in done.output) + (done.code != 0) >= 2:  # each alone may mean something else
        return DISK_FULL
    return f"exit {done.code}" if done.code else ""


def reason(error: BaseException) -> str:
    """A word or two of an error."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).rpartition(": ")[2].split())[:80]
