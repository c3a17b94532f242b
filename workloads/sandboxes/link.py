"""Our end of a supervisor (``supervisor.py``): starts it, asks it, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START_S = 20.0
ANSWER_S = 10.0
"""For what takes no time of its own (a file, say); a command gets this on top of its timeout."""
END_S, KILLED_S = 7.0, 2.0
"""Longer than the supervisor needs to give up on processes that would not go; what SIGKILL takes."""

MOST_REPLY = 0x2020_2020
"""Bytes; four printable characters, written there by a tool, are never a length below this."""


class Gone(RuntimeError):
    """The supervisor is not there any more, or does not answer."""


class Refused(RuntimeError):
    """It could not do what it was asked: why."""


class Link:
    """One supervisor, of one event loop; requests may overlap."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._silent = False
        self._spoilt = ""

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], errors: Path) -> Link:
        """Run it until it serves. Raises Gone with what it said last. Not to be cancelled: who ends a bwrap
        that is half set up may leave the other half, so it is awaited, and ended then."""
        try:
            with errors.open("wb") as sink:
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=sink,
                    env=dict(environment), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise Gone(f"cannot run {command[0]}: {error.strerror}") from None
        link = cls(process, errors)
        try:
            async with asyncio.timeout(START_S):
                await link._receive()
        except (TimeoutError, asyncio.IncompleteReadError, ValueError):
            await link.end()
            raise Gone(f"it did not start: {link.words()}") from None
        link._reader = asyncio.create_task(link._read())
        return link

    @property
    def pid(self) -> int:
        """Of the process that we started."""
        return self._process.pid

    async def ask(self, op: str, wait_s: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        """Its reply. Raises Gone or Refused. Cancelled, a command that runs is killed."""
        number = next(self._ids)
        self._send({"id": number, "op": op, **fields})
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(wait_s):
                said: dict[str, Any] = await future
        except TimeoutError:
            self._silent = True  # stopped by a tool, say: no more waiting for it
            raise Gone(f"no answer within {wait_s:g} s") from None
        except asyncio.CancelledError:
            with contextlib.suppress(Gone):
                self._send({"id": 0, "op": "kill", "which": number})
            raise
        finally:
            self._waiting.pop(number, None)
        if "error" in said:
            raise Refused(said["error"])
        return said

    async def end(self) -> int | None:
        """The end of its input tells it to kill everything and leave; it is killed if it does not.

        Its exit status: 0 is that nothing is left, None that it is not known to be gone.
        """
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._silent or not await self._gone_within(END_S):
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._gone_within(KILLED_S)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        return self._process.returncode

    async def _gone_within(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def words(self) -> str:
        """Why it is gone, as far as it is known: the last line that it said on standard error."""
        if self._spoilt:
            return self._spoilt
        with contextlib.suppress(OSError):
            lines = self._errors.read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1][:300]
        return f"exit status {self._process.returncode}"

    def _send(self, request: dict[str, Any]) -> None:
        if self._silent:
            raise Gone("its supervisor does not answer")
        source = self._process.stdin
        if source is None or source.is_closing() or self._reader is None or self._reader.done():
            raise Gone(f"its supervisor is gone ({self.words()})")
        data = json.dumps(request).encode()
        source.write(len(data).to_bytes(4, "big") + data)

    async def _receive(self) -> dict[str, Any]:
        stream = self._process.stdout
        if stream is None:
            raise Gone("no output")
        size = int.from_bytes(await stream.readexactly(4), "big")
        if size >= MOST_REPLY:
            raise ValueError("that is no length")
        said: dict[str, Any] = json.loads(await stream.readexactly(size))
        if not isinstance(said, dict) or not isinstance(said.get("id"), int):
            raise ValueError("that is no reply")
        return said

    async def _read(self) -> None:
        try:
            while True:
                said = await self._receive()
                waiting = self._waiting.get(said["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (ValueError, RecursionError):
            self._spoilt = "what came from it is no reply: a tool wrote in its place"
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(Gone(f"its supervisor is gone ({self.words()})"))
