"""Sandboxes of this machine with a supervisor beside the tools: ``process`` and ``bwrap``."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from workloads.sandboxes import supervisor
from workloads.sandboxes.base import BaseSandbox
from workloads.sandboxes.contract import Executed, SandboxError
from workloads.sandboxes.folders import remove_folder
from workloads.sandboxes.ledger import Entry, Ledger
from workloads.sandboxes.link import ANSWER_S, Gone, Link, Refused
from workloads.sandboxes.processes import NAME, called, kill_marked
from workloads.sandboxes.threads import in_thread

SUPERVISOR = Path(supervisor.__file__)
LEAST_MEMORY_MB = 64


class LocalSandbox(BaseSandbox):
    """Its folder holds ``workspace``, ``tmp`` and what the supervisor said on standard error."""

    _link: Link | None = None
    _starting: asyncio.Task[Link] | None = None

    @abstractmethod
    def _command(self) -> list[str]:
        """Starts the supervisor."""

    @property
    @abstractmethod
    def _scratch(self) -> str:
        """For temporary files, as tools see it."""

    async def _make(self) -> None:
        memory = self.options.memory_mb
        if memory is not None and memory < LEAST_MEMORY_MB:
            raise SandboxError(
                f"sandbox {self.name}: memory_mb must be {LEAST_MEMORY_MB} or more, got {memory}"
            )
        for part in ("workspace", "tmp"):
            (self.options.folder / part).mkdir()
        try:
            errors = self.options.folder / "errors.txt"
            start = Link.start(self._command(), self._environment(self._scratch), errors)
            self._starting = asyncio.create_task(start)
            self._link = await asyncio.shield(self._starting)
        except Gone as error:
            raise SandboxError(f"sandbox {self.name} ({self.kind}): {error}") from None
        if self.options.files:
            await self._ask("files", "its files cannot be written", files=dict(self.options.files))

    async def _run(
        self, command: str, timeout_s: float, stdin: str, cwd: str, mark: str
    ) -> tuple[Executed, bool]:
        begin = time.monotonic()
        said = await self._ask(
            "exec", "cannot run it", timeout_s + ANSWER_S, command=command, timeout=timeout_s, stdin=stdin,
            cwd=cwd, mark=mark, most=self.options.most_output,
        )  # fmt: skip
        if said["left"]:
            self._say(begin, "kill", ok=False, detail=f"{len(said['left'])} processes do not end")
        seconds = time.monotonic() - begin
        return Executed(said["code"], said["output"], seconds, said["timed_out"]), said["full"]

    async def write(self, path: str, text: str) -> None:
        """See Sandbox."""
        await self._ask("files", f"cannot write {path}", files={path: text})

    async def read(self, path: str) -> str:
        """See Sandbox."""
        text: str = (await self._ask("read", f"cannot read {path}", path=path))["text"]
        return text

    async def _disk(self) -> int:
        size: int = (await self._ask("disk", "cannot tell its disk"))["bytes"]
        return size

    async def _remove(self) -> None:
        starting, self._starting, self._link = self._starting, None, None
        if starting is not None:
            with contextlib.suppress(Gone):
                if await (await starting).end() == 0:
                    return  # nothing outlived it
        await in_thread(end_marked, self.name)

    async def _ask(self, op: str, failed: str, wait_s: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        if self._link is None:
            self._refuse(failed, "it is not there: torn down, or never made")
        try:
            return await self._link.ask(op, wait_s, **fields)
        except (Gone, Refused) as error:
            self._refuse(failed, str(error))

    def _refuse(self, failed: str, why: str) -> NoReturn:
        raise SandboxError(f"sandbox {self.name} ({self.kind}): {failed}: {why}") from None


def end_marked(name: str) -> None:
    """Kill what bears a sandbox's mark. Raises SandboxError if something stays."""
    if left := kill_marked(NAME, name):
        raise SandboxError(f"process {left[0]} ({called(left[0])}) does not end")


def sweep_entries(
    entries: Iterable[Entry], ledger: Ledger, remove: Callable[[Entry], None] = lambda _: None
) -> list[str]:
    """Remove what they tell of: container (``remove``), processes, folder, entry. In words what was done."""
    said = []
    for entry in entries:
        what = f"sandbox {entry.name} ({entry.kind}) of process {entry.process.pid}"
        try:
            remove(entry)
            end_marked(entry.name)
            remove_folder(Path(entry.folder))
            ledger.leave(entry.name)
            said.append(f"{what}: removed")
        except (OSError, SandboxError) as error:
            said.append(f"{what}: cannot be removed: {error}")
    return said
