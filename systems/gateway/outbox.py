"""What engines of ours are told over their control sockets (docs/vllm.md); never waits for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from systems.gateway.door import NO_CONTROL
from systems.gateway.programs import Programs
from systems.gateway.workers import Workers
from systems.vllm_host.control import Client
from vocabulary import INF

MOST = 10_000
"""Messages that are kept for an engine which does not take them; the oldest go first. An engine that misses
an end keeps a few numbers too long, one that misses another message treats some KV as any other."""

Message = tuple[str, float, int]
"""Operation, until when (s) it means anything, priority."""


class Outbox:
    """An engine reads its messages when it schedules a step, a few at a time: what it does not take now is
    offered again by ``flush``. Of a program only the last word counts; ``now``: seconds.
    """

    def __init__(self, workers: Workers, now: Callable[[], float] = lambda: 0.0) -> None:
        self._waiting: dict[int, dict[str, Message]] = {w.id: {} for w in workers if w.target.control}
        self._paths = {w.id: w.target.control or "" for w in workers}
        self._clients: dict[int, Client] = {}
        self._now = now

    def __len__(self) -> int:
        """Messages no engine has taken yet."""
        return sum(map(len, self._waiting.values()))

    def reaches(self, engine: int) -> bool:
        """Whether the engine has a control socket."""
        return engine in self._waiting

    def end(self, name: str, engine: int) -> None:
        """The program called ``name`` is over, and was at this engine."""
        self._put(engine, name, ("end", INF, 0))

    def drop(self, name: str, engine: int) -> None:
        """What it left is to be evicted before all else."""
        self._put(engine, name, ("drop", INF, 0))

    def release(self, name: str, engine: int) -> None:
        """What it left goes by the cache's order again."""
        self._put(engine, name, ("release", INF, 0))

    def retain(self, name: str, engine: int, until: float, priority: int = 0) -> None:
        """What it left, and will leave, is kept until ``until`` (s)."""
        self._put(engine, name, ("retain", until, priority))

    def recall(self, name: str) -> list[int]:
        """The program lives again: the engines that were still to hear of its end, and will not."""
        found = [
            engine for engine, waiting in self._waiting.items() if waiting.get(name, ("", 0.0, 0))[0] == "end"
        ]
        for engine in found:
            del self._waiting[engine][name]
        return found

    def withdraw(self, name: str) -> None:
        """Take back drops that no engine has taken yet."""
        for waiting in self._waiting.values():
            if waiting.get(name, ("", 0.0, 0))[0] == "drop":
                del waiting[name]

    def flush(self) -> None:
        """Offer what waits."""
        for engine, waiting in self._waiting.items():
            if waiting:
                self._send(engine, waiting)

    def close(self) -> None:
        """Done; idempotent."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _put(self, engine: int, name: str, message: Message) -> None:
        waiting = self._waiting.get(engine)
        if waiting is None or not name:
            return
        waiting.pop(name, None)
        waiting[name] = message
        if len(waiting) > MOST:
            del waiting[next(iter(waiting))]
        self._send(engine, waiting)

    def _send(self, engine: int, waiting: dict[str, Message]) -> None:
        try:
            client = self._clients.get(engine)
            if client is None:
                client = self._clients[engine] = Client(self._paths[engine], timeout=0.0)
            while waiting:
                name, (op, until, priority) = next(iter(waiting.items()))
                fields = self._fields(op, until, priority)
                if fields is not None:
                    client.send(op, program=name, **fields)
                del waiting[name]
        except BlockingIOError:
            return  # its queue is full
        except OSError:  # it is not there (any more): a new one will have a new socket
            client = self._clients.pop(engine, None)
            if client is not None:
                client.close()

    def _fields(self, op: str, until: float, priority: int) -> dict[str, Any] | None:
        """None: it is too late to say it."""
        if op != "retain":
            return {}
        left = until - self._now()
        return {"for_s": left if left < INF else None, "priority": priority} if left > 0.0 else None


class Drops:
    """What a gate's pauses free: by numbers of ``programs``, over ``outbox``."""

    def __init__(self, programs: Programs, outbox: Outbox) -> None:
        self._programs = programs
        self._outbox = outbox

    def drop(self, program: int, engine: int) -> str:
        """``engine told``, or why it is not."""
        found = self._programs.numbered(program)
        if found is None or not self._outbox.reaches(engine):
            return NO_CONTROL
        self._outbox.drop(found.name, engine)
        return "engine told"

    def back(self, program: int) -> None:
        """A drop that no engine has heard of yet must not hit what it will compute."""
        found = self._programs.numbered(program)
        if found is not None:
            self._outbox.withdraw(found.name)
