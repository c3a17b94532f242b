"""Workers that the gateway's fault script breaks and repairs: fake engines, or real vLLM servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks.gateway_parts import processes
from benchmarks.gateway_parts.processes import FakeEngine
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.gateway.load import load_of
from systems.gateway.options import Target
from systems.provision.process import free_port
from systems.vllm_host.tiny import write


class Flight(NamedTuple):
    """What an engine works on: requests, and the programs they named (None: it cannot tell)."""

    calls: int
    names: tuple[str, ...] | None


class Victim(Protocol):
    """A worker behind the gateway."""

    def target(self) -> Target:
        """As the gateway is told of it."""

    async def suffer(self, kind: str) -> int:
        """kill, hang_metrics or pause; what is broken stays so until ``repair``.

        The requests that were in flight when it was killed.
        """

    async def repair(self) -> None:
        """Up and well when it returns; idempotent."""

    async def hold(self, held: bool) -> None:
        """Send nothing, or go on, where the engine can be told to."""

    def in_flight(self) -> Flight:
        """Raises OSError if it does not answer."""


class FakeVictim(FakeEngine):
    """A fake engine. Repairs wait for each other: faults of one worker may overlap."""

    def __init__(self) -> None:
        super().__init__(first_s=0.03, gap_s=0.01)
        self._paused = False
        self._mending = asyncio.Lock()

    def target(self) -> Target:
        """Its URL keeps over restarts."""
        return Target(self.url)

    async def suffer(self, kind: str) -> int:
        """See Victim."""
        async with self._mending:
            if kind == "kill":
                return await asyncio.to_thread(self._kill)
            if kind == "pause":
                self.pause(True)
                self._paused = True
            elif self.pid and not self._paused:  # one that is stopped hangs anyway
                await asyncio.to_thread(self.set, hang_metrics=True)
            return 0

    def _kill(self) -> int:
        calls = 0
        with contextlib.suppress(OSError):  # it was killed before, or hangs
            calls = self.in_flight().calls
        self.kill()
        return calls

    async def repair(self) -> None:
        """See Victim."""
        async with self._mending:
            self.pause(False)
            self._paused = False
            if not self.pid:
                self.begin()
                await asyncio.to_thread(self.ready)
            await asyncio.to_thread(self.set, hang_metrics=False)

    async def hold(self, held: bool) -> None:
        """See Victim."""
        await asyncio.to_thread(self.set, hold=held)

    def in_flight(self) -> Flight:
        """By its own count."""
        names = self.facts()["in_flight"]
        return Flight(len(names), tuple(names))


class VllmVictim:
    """A real vLLM server, killed with all its processes and started again at its port. One without calls
    sleeps, so ``hang_metrics`` and ``pause`` are the same: its processes are stopped."""

    def __init__(self, options: ServerOptions, folder: Path) -> None:
        self.model = options.name
        self._port = free_port()
        self._options = options
        self._folder = folder
        self._url = f"http://127.0.0.1:{self._port}"
        self._server = self._new()
        self._mending = asyncio.Lock()

    def _new(self) -> VllmServer:
        return VllmServer(self._options, self._folder, port=self._port)

    def begin(self) -> None:
        """Start; ``ready`` waits."""
        self._server.begin()

    def ready(self) -> None:
        """Raises EngineUnavailable."""
        self._server.ready()

    def stop(self) -> None:
        """Nothing of it is left."""
        self._signal(signal.SIGCONT)
        self._server.stop()

    def target(self) -> Target:
        """Service is told from its call log."""
        return Target(self._url, calls=str(self._folder / "calls.jsonl"))

    async def suffer(self, kind: str) -> int:
        """See Victim."""
        async with self._mending:
            if kind != "kill":
                self._signal(signal.SIGSTOP)
                return 0
            calls = 0
            with contextlib.suppress(OSError):
                calls = max(0, (await asyncio.to_thread(self.in_flight)).calls)
            await asyncio.to_thread(self._kill)
            return calls

    async def repair(self) -> None:
        """See Victim. A start takes half a minute."""
        async with self._mending:
            self._signal(signal.SIGCONT)
            if not self._server.processes():
                self._server.stop()
                self._server = self._new()
                self.begin()
                await asyncio.to_thread(self.ready)

    async def hold(self, held: bool) -> None:
        """It cannot: the books are looked at until they agree at one moment."""

    def in_flight(self) -> Flight:
        """As its /metrics say."""
        load = load_of(processes.fetch(self._url + "/metrics"))
        return Flight(load.running + load.waiting if load else -1, None)

    def _kill(self) -> None:
        """All its processes; none is there when it returns, and its port is free."""
        while left := self._server.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        deadline = time.monotonic() + processes.START_S
        while not processes.free(self._port) and time.monotonic() < deadline:
            time.sleep(0.05)  # threads of a process that is gone may still have its sockets

    def _signal(self, which: signal.Signals) -> None:
        """To all but the guard that stands before them."""
        for pid in self._server.processes():
            if pid != self._server.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, which)


def vllm_victims(stack: ExitStack, number: int, folder: Path, **options: Any) -> Sequence[VllmVictim]:
    """So many servers with a tiny model, up; ``stack`` stops them."""
    model = write(folder / "model")
    victims = [VllmVictim(ServerOptions(model, **options), folder / f"vllm-{i}") for i in range(number)]
    for victim in victims:
        stack.callback(victim.stop)
        victim.begin()
    for victim in victims:
        victim.ready()
    return victims
