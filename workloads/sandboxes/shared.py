"""One sandbox that several programs share: made for the first, torn down with the last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from workloads.sandboxes.contract import Executed, Sandbox, SandboxError, SandboxEvent


@dataclass
class _Held:
    """A sandbox, and the names of those that share it."""

    sandbox: Sandbox
    users: set[str] = field(default_factory=set)


class SharedSandboxes:
    """Sandboxes by key, of one event loop. ``told`` hears ``share`` and ``unshare``: ``seconds`` is what the
    program waited, ``detail`` how many share it then."""

    def __init__(self, told: Callable[[SandboxEvent], None]) -> None:
        self._told = told
        self._held: dict[str, _Held] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def share(self, key: str, user: str, make: Callable[[], Sandbox]) -> Sandbox:
        """A sandbox as any other for ``user`` (a program's name, unique): its ``init`` waits until that of
        ``key`` is there (``make`` is called if nobody has it), its ``teardown`` leaves it."""
        return SharedSandbox(self, key, user, make)

    async def join(self, key: str, user: str, make: Callable[[], Sandbox]) -> Sandbox:
        """Raises SandboxError if it cannot be made; the next one tries again."""
        begin = time.monotonic()
        async with self._locks.setdefault(key, asyncio.Lock()):
            held = self._held.get(key)
            if held is None:
                held = _Held(make())
                await held.sandbox.init()
                self._held[key] = held
            held.users.add(user)
            self._say(begin, held, "share")
        return held.sandbox

    async def leave(self, key: str, user: str, sandbox: Sandbox) -> None:
        """Raises SandboxError if it was the last and something stays; then again tears down again."""
        begin = time.monotonic()
        async with self._locks.setdefault(key, asyncio.Lock()):
            held = self._held.get(key)
            if held is not None and held.sandbox is sandbox:
                if user in held.users:
                    held.users.discard(user)
                    self._say(begin, held, "unshare")
                if held.users:
                    return
                del self._held[key]
            await sandbox.teardown()

    def _say(self, begin: float, held: _Held, what: str) -> None:
        seconds, sandbox = time.monotonic() - begin, held.sandbox
        self._told(
            SandboxEvent(begin, sandbox.name, what, seconds, True, -1, sandbox.ports, str(len(held.users)))
        )


class SharedSandbox:
    """One program's share (``Sandbox``)."""

    def __init__(self, pool: SharedSandboxes, key: str, user: str, make: Callable[[], Sandbox]) -> None:
        self._pool, self._key, self._user, self._make = pool, key, user, make
        self._shared: Sandbox | None = None
        self.name = key
        self.ports: tuple[int, ...] = ()

    async def init(self) -> None:
        """See Sandbox."""
        if self._shared is not None:
            raise SandboxError(f"sandbox {self.name}: {self._user} has its share already")
        self._shared = await self._pool.join(self._key, self._user, self._make)
        self.name, self.ports = self._shared.name, self._shared.ports

    async def exec(
        self, command: str, *, timeout_s: float = 60.0, stdin: str = "", cwd: str = ""
    ) -> Executed:
        """See Sandbox."""
        return await self._there().exec(command, timeout_s=timeout_s, stdin=stdin, cwd=cwd)

    async def write(self, path: str, text: str) -> None:
        """See Sandbox."""
        await self._there().write(path, text)

    async def read(self, path: str) -> str:
        """See Sandbox."""
        return await self._there().read(path)

    async def disk(self) -> int:
        """See Sandbox."""
        return await self._there().disk()

    async def teardown(self) -> None:
        """See Sandbox: of this share."""
        if self._shared is not None:
            await self._pool.leave(self._key, self._user, self._shared)
            self._shared, self.ports = None, ()

    def _there(self) -> Sandbox:
        if self._shared is None:
            raise SandboxError(f"sandbox {self.name}: {self._user} has no share of it")
        return self._shared
