"""Processes that do one task at a time, so that a task that dies takes only itself along."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, NamedTuple

Say = Callable[[Any], None]
"""Sends the parent something while a task runs."""
Work = Callable[[Any, Say], Any]
"""(task, say) -> answer. It must not raise; KeyboardInterrupt ends the process."""

GRACE = 5.0
"""Seconds a worker that is told to stop has to put away its files and engines."""


class Said(NamedTuple):
    """Something said on the way."""

    value: Any


class Done(NamedTuple):
    """The task's answer."""

    value: Any


class Died(NamedTuple):
    """The process ended without an answer. ``code``: its exit code, or minus the signal that ended it."""

    code: int

    @property
    def why(self) -> str:
        """In words: what is known about the end."""
        if self.code >= 0:
            return f"its process ended with exit code {self.code}"
        name = signal.Signals(-self.code).name
        hint = ", by the kernel for want of memory or by somebody" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"


class Worker:
    """One process and our end of the pipe to it. ``busy`` while it has a task."""

    def __init__(self, work: Work, others: Sequence[Connection]) -> None:
        context = get_context("fork")  # what is loaded (and which code it is) stays the same for all
        self.connection, theirs = context.Pipe()
        strangers = [*others, self.connection]
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, strangers, work), daemon=True
        )
        with _no_ctrl_c():
            self.process.start()
        theirs.close()
        self.busy = False

    def give(self, task: Any) -> None:
        """Start a task; a process that is gone shows in ``events``."""
        self.busy = True
        with contextlib.suppress(OSError):
            self.connection.send(task)

    def event(self) -> Said | Done | Died:
        """What it has to tell; call it when there is something."""
        try:
            if self.connection.poll():
                final, value = self.connection.recv()
                self.busy = not final
                return Done(value) if final else Said(value)
        except (EOFError, OSError):
            pass
        self.process.join(GRACE)
        self.busy = False
        return Died(self.process.exitcode or 0)


class Pool:
    """``size`` workers; one that died is replaced. Use it in a ``with``: nothing outlives it."""

    def __init__(self, size: int, work: Work) -> None:
        self._work = work
        self.workers: list[Worker] = []
        try:
            for _ in range(size):
                self._add(len(self.workers))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, place: int) -> None:
        others = [worker.connection for worker in self.workers]
        self.workers[place : place + 1] = [Worker(self._work, others)]

    def events(self, timeout: float) -> Iterator[tuple[int, Said | Done | Died]]:
        """(worker's place, event) of the busy ones, after at most ``timeout`` seconds."""
        busy = [(i, worker) for i, worker in enumerate(self.workers) if worker.busy]
        watched: list[Any] = [w.connection for _, w in busy] + [w.process.sentinel for _, w in busy]
        ready = connection.wait(watched, timeout)
        for place, worker in busy:
            if worker.connection in ready or worker.process.sentinel in ready:
                event = worker.event()
                if isinstance(event, Died):
                    worker.connection.close()
                    self._add(place)
                yield place, event

    def close(self) -> None:
        """End all processes: they may put their things away for GRACE seconds."""
        with _no_ctrl_c():
            for worker in self.workers:
                worker.process.terminate()
            last = time.monotonic() + GRACE
            for worker in self.workers:
                worker.process.join(max(0.0, last - time.monotonic()))
                worker.process.kill()
                worker.process.join()
                worker.connection.close()
            self.workers = []


@contextlib.contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Ctrl-C waits till the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(ours: Connection, strangers: Sequence[Connection], work: Work) -> None:
    """A worker's life: it ends when the parent's end of the pipe is closed, or by SIGTERM."""
    for stranger in strangers:  # or a sibling would keep the parent's end open when the parent is gone
        stranger.close()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        signal.signal(signal.SIGTERM, _leave)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        threading.Thread(target=_end_with_parent, daemon=True).start()
        while True:
            task = ours.recv()
            answer = work(task, lambda value: ours.send((False, value)))
            ours.send((True, answer))


def _end_with_parent() -> None:
    """A worker whose parent was killed does not finish its task for nobody."""
    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _leave(*_: object) -> None:
    warnings.simplefilter("ignore")  # coroutines that nobody will await any more
    raise KeyboardInterrupt
