"""One sandbox that several programs share: made for the first, torn down with the last.

Each has a folder of the workspace, which is its own workspace; nothing keeps it from looking at the others'.
"""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workloads.sandboxes.contract import Executed, Sandbox, SandboxError, SandboxEvent

Told = Callable[[SandboxEvent], None]


@dataclass
class _Held:
    """A sandbox, and the names of those that share it."""

    sandbox: Sandbox
    users: set[str] = field(default_factory=set)


class SharedSandboxes:
    """Sandboxes by key, of one event loop."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def share(
        self, key: str, user: str, make: Callable[[], Sandbox], files: Mapping[str, str], told: Told
    ) -> Sandbox:
        """A sandbox as any other for ``user`` (a program's name, unique, which its folder has).

        Its ``init`` waits until that of ``key`` is there (``make`` is called if nobody has it), its
        ``teardown`` leaves it.

        ``told`` hears ``share`` and ``unshare``: ``seconds`` is what the program waited, ``detail`` how many
        share it then. All else is told to who made it.
        """
        return SharedSandbox(self, key, user, make, files, told)

    async def join(self, key: str, user: str, make: Callable[[], Sandbox], told: Told) -> Sandbox:
        """Raises SandboxError if it cannot be made; the next one tries again."""
        begin = time.monotonic()
        async with self._locks.setdefault(key, asyncio.Lock()):
            held = self._held.get(key)
            if held is None:
                held = _Held(make())
                await held.sandbox.init()
                self._held[key] = held
            held.users.add(user)
            _say(told, begin, held, "share")
        return held.sandbox

    async def leave(self, key: str, user: str, sandbox: Sandbox, told: Told) -> None:
        """Raises SandboxError if it was the last and something stays; then again tears down again."""
        begin = time.monotonic()
        async with self._locks.setdefault(key, asyncio.Lock()):
            held = self._held.get(key)
            if held is not None and held.sandbox is sandbox:
                if user in held.users:
                    held.users.discard(user)
                    _say(told, begin, held, "unshare")
                if held.users:
                    return
                del self._held[key]
            await sandbox.teardown()


def _say(told: Told, begin: float, held: _Held, what: str) -> None:
    seconds, sandbox = time.monotonic() - begin, held.sandbox
    told(SandboxEvent(begin, sandbox.name, what, seconds, True, -1, sandbox.ports, str(len(held.users))))


class SharedSandbox:
    """One program's share (``Sandbox``)."""

    def __init__(
        self, pool: SharedSandboxes, key: str, user: str, make: Callable[[], Sandbox],
        files: Mapping[str, str], told: Told,
    ) -> None:  # fmt: skip
        self._pool, self._key, self._user, self._make = pool, key, user, make
        self._files, self._told = files, told
        self._shared: Sandbox | None = None
        self.name = key
        self.ports: tuple[int, ...] = ()

    async def init(self) -> None:
        """See Sandbox."""
        if self._shared is not None:
            raise SandboxError(f"sandbox {self.name}: {self._user} has its share already")
        shared = self._shared = await self._pool.join(self._key, self._user, self._make, self._told)
        self.name, self.ports = shared.name, shared.ports
        try:
            await shared.exec(f"mkdir {self._user}")
            for path, text in self._files.items():
                await self.write(path, text)
        except BaseException:
            await asyncio.shield(self.teardown())
            raise

    async def exec(
        self, command: str, *, timeout_s: float = 60.0, stdin: str = "", cwd: str = ""
    ) -> Executed:
        """See Sandbox."""
        return await self._there().exec(command, timeout_s=timeout_s, stdin=stdin, cwd=self._own(cwd))

    async def write(self, path: str, text: str) -> None:
        """See Sandbox."""
        await self._there().write(self._own(path), text)

    async def read(self, path: str) -> str:
        """See Sandbox."""
        return await self._there().read(self._own(path))

    async def disk(self) -> int:
        """Of the whole sandbox: who wrote what is not known."""
        return await self._there().disk()

    async def teardown(self) -> None:
        """See Sandbox: of this share. Its folder goes with the sandbox."""
        if self._shared is not None:
            await self._pool.leave(self._key, self._user, self._shared, self._told)
            self._shared, self.ports = None, ()

    def _own(self, path: str) -> str:
        """Where it is in the sandbox's workspace."""
        where = posixpath.normpath(posixpath.join(self._user, path))
        if where != self._user and not where.startswith(f"{self._user}/"):
            raise SandboxError(f"sandbox {self.name}: {path!r} is outside the workspace")
        return where

    def _there(self) -> Sandbox:
        if self._shared is None:
            raise SandboxError(f"sandbox {self.name}: {self._user} has no share of it")
        return self._shared
