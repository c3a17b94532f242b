"""Tells engines of ours that a program is over, over their control sockets; never waits for one."""

from __future__ import annotations

from systems.gateway.workers import Workers
from systems.vllm_host.control import Client

MOST = 10_000
"""Ends that are kept for an engine which does not take them; the oldest go first. An engine that misses
one keeps a few numbers too long."""


class Farewells:
    """An engine reads its messages when it schedules a step, a few at a time: what it does not take now is
    offered again by ``flush``."""

    def __init__(self, workers: Workers) -> None:
        self._waiting: dict[int, dict[str, None]] = {w.id: {} for w in workers if w.target.control}
        self._paths = {w.id: w.target.control or "" for w in workers}
        self._clients: dict[int, Client] = {}

    def __len__(self) -> int:
        """Messages no engine has taken yet."""
        return sum(map(len, self._waiting.values()))

    def end(self, name: str, engine: int) -> None:
        """The program called ``name`` is over, and was at this engine."""
        waiting = self._waiting.get(engine)
        if waiting is not None and name:
            waiting[name] = None
            if len(waiting) > MOST:
                del waiting[next(iter(waiting))]
            self._send(engine, waiting)

    def recall(self, name: str) -> list[int]:
        """The program lives again: the engines that were still to hear of its end, and will not."""
        found = [engine for engine, waiting in self._waiting.items() if name in waiting]
        for engine in found:
            del self._waiting[engine][name]
        return found

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

    def _send(self, engine: int, waiting: dict[str, None]) -> None:
        try:
            client = self._clients.get(engine)
            if client is None:
                client = self._clients[engine] = Client(self._paths[engine], timeout=0.0)
            while waiting:
                name = next(iter(waiting))
                client.send("end", program=name)
                del waiting[name]
        except BlockingIOError:
            return  # its queue is full
        except OSError:  # it is not there (any more): a new one will have a new socket
            client = self._clients.pop(engine, None)
            if client is not None:
                client.close()
