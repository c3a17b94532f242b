"""Locust as the driver, from our side: its processes are started, listened to, and ended.

Importing Locust patches the standard library of the process that does it, and asyncio cannot run in its
greenlets: so nothing here imports it (docs/locust.md).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from types import TracebackType
from typing import IO, Any, Self

import orjson

from bench.drivers.audit import Audit
from bench.drivers.calls import CallFailed
from bench.drivers.delivered import Delivered
from bench.drivers.effects import ProgramError
from bench.drivers.live_records import LiveCall, LiveProgram, LiveRun
from bench.drivers.locust.job import (
    ALIVE,
    ENDED,
    ERRORS,
    FAILED,
    OVER,
    READY,
    ROWS,
    WEB,
    Job,
    Recipe,
    call_of,
    program_of,
)
from bench.errors import BenchError, InvalidRun, MissingError, UsageError
from systems.engines.vllm_server import free_port
from systems.engines.vllm_virtual import ROOT

__all__ = ["Recipe", "drive_locust"]

START_S = 120.0
"""Locust's processes must have their programs by then (2 s on a quiet machine)."""
SILENT_S = 60.0
"""A master that says nothing for so long hangs: it speaks every second."""
GRACE_S = 2.0
MODULE = "bench.drivers.locust"


def drive_locust(
    recipe: Recipe,
    times: Sequence[float],
    url: str,
    model: str,
    *,
    vocabulary: int,
    salt: str,
    run: str = "run",
    cache_salt: str = "",
    workers: int = 1,
    web: int | None = None,
    remote: int = 0,
    listen: str = "",
    front: str = "",
    front_knobs: Mapping[str, Any] = {},
    limit_s: float = 600.0,
    watch: Callable[[], None] = lambda: None,
    over: Callable[[str], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> LiveRun:
    """As ``drive_live``, by Locust in processes of its own; ``times[i]`` is when program i arrives (s).

    ``vocabulary`` and ``salt`` as for ``TokenIds``. ``workers`` processes share the programs, each of which
    runs once, with ``remote`` more that join from other machines at ``listen`` (HOST:PORT of this one).
    ``web``: port of Locust's page on the loopback (0: a free one); ``say`` hears where, and what remote
    workers have to run. ``front``, ``front_knobs``: the front (systems/fronts) at ``url``, whose headers
    go with each call. ``watch`` is asked when something fails, and may raise something better; ``over``
    hears the ``program_id`` of each program that is over, and if the run fails, when Locust's processes have
    ended, of all the others.

    Raises CallFailed or ProgramError as ``drive_live`` does, MissingError if Locust is not there, InvalidRun
    if its processes make other programs, end or hang.
    """
    if find_spec("locust") is None:
        raise MissingError(
            "the Locust driver needs Locust, which is not here: pip install 'agent-serving-bench[locust]'"
        )
    if workers < 1 or remote < 0:
        raise UsageError(f"the Locust driver needs at least 1 worker, got {workers} and {remote} remote ones")
    host, port = _place(listen, remote) if workers + remote > 1 else ("", 0)
    job = Job(
        recipe, tuple(times), url.rstrip("/"), model, vocabulary, salt, run, cache_salt, workers + remote,
        _page(web), limit_s, host, port, front, dict(front_knobs),
    )  # fmt: skip
    if remote:
        say(f"{remote} more workers: python -m {MODULE} --join {host}:{port}")
    with Processes(job, workers) as processes:
        return _Run(run, watch, over, say).listen(processes)


def _page(web: int | None) -> int | None:
    """The port of Locust's page. Raises UsageError if somebody has it: Locust would do without."""
    if not web:
        return free_port() if web == 0 else None
    try:
        with socket.create_server(("127.0.0.1", web)):
            return web
    except OSError as error:
        raise UsageError(
            f"Locust's page cannot have port {web}: {error.strerror}; 0 takes a free one"
        ) from None


def _place(listen: str, remote: int) -> tuple[str, int]:
    """Where the master listens: on the loopback unless somebody joins from elsewhere. Raises UsageError."""
    if not remote:
        return "127.0.0.1", free_port()
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"remote workers join at an address of this machine, HOST:PORT; got {listen!r}")
    return host, int(port)


class _Run:
    """What the processes have told so far."""

    def __init__(
        self, name: str, watch: Callable[[], None], over: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        self.name = name
        self.watch = watch
        self.over = over
        self.say = say
        self.programs: list[LiveProgram] = []
        self.calls: list[LiveCall] = []
        self.shares: list[dict[str, Any]] = []
        self.ended: set[int] = set()

    def listen(self, processes: Processes) -> LiveRun:
        """Until all workers are done."""
        try:
            for line in processes.lines():
                self._told(line)
                if len(self.shares) == processes.job.workers:
                    return self._whole()
        except (CallFailed, ProgramError, BenchError):
            self._failed(processes)
            raise
        raise AssertionError("lines end with an error or a whole run")

    def _failed(self, processes: Processes) -> None:
        """What died is asked for at once. No program is over while processes still send its calls."""
        try:
            self.watch()
        finally:
            processes.stop()
            for program in range(len(processes.job.times)):
                if program not in self.ended:
                    self.over(f"{self.name}.{program}")

    def _told(self, line: dict[str, Any]) -> None:
        kind = line["t"]
        if kind == ENDED:
            self.ended.add(line["program"])
            self.over(f"{self.name}.{line['program']}")
        elif kind == ROWS:
            self.programs += map(program_of, line["programs"])
            self.calls += map(call_of, line["calls"])
        elif kind == OVER:
            self.shares.append(line)
        elif kind == WEB:
            self.say(f"Locust's page: {line['url']}")
        elif kind == FAILED:
            raise ERRORS.get(line["kind"], InvalidRun)(line["message"])

    def _delivered(self) -> Delivered | None:
        """When each program's first call was due, and when it was sent."""
        first: dict[int, LiveCall] = {}
        for call in sorted(self.calls, key=lambda call: call.t_send):
            first.setdefault(call.program, call)
        return Delivered.of([c.t_sched for c in first.values()], [c.t_send for c in first.values()])

    def _whole(self) -> LiveRun:
        """All workers' rows, as one driver would have them."""
        self.programs.sort(key=lambda row: row.program)
        self.calls.sort(key=lambda call: call.t_last)
        took = max(share["took"] for share in self.shares)
        audit = Audit.of(
            [call.t_send - call.t_sched for call in self.calls],
            [lag for share in self.shares for lag in share["lags"]],
            max(share["cpu"] for share in self.shares),
            most_open(self.calls),
            self._delivered(),
        )
        audit = replace(audit, rss_mb=max(share["rss_mb"] for share in self.shares))
        wall, origin = self.shares[0]["wall"], self.shares[0]["origin"]
        return LiveRun(self.name, wall, took, self.programs, self.calls, audit, origin)


def most_open(calls: Sequence[LiveCall]) -> int:
    """How many were in flight at once; one that ends when another begins is not."""
    events = sorted([(call.t_send, 1) for call in calls] + [(call.t_last, -1) for call in calls])
    most = there = 0
    for _, change in events:
        there += change
        most = max(most, there)
    return most


class Processes:
    """Locust's processes; use in a ``with``: none outlives it, nor this process if that is killed.

    Each holds the other end of a pipe that closes with us. The first one tells what happens.
    """

    def __init__(self, job: Job, workers: int) -> None:
        self.job = job
        self.workers = workers
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in stop)
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            head = self._start()
            assert head.stdin is not None
            head.stdin.write(self.job.as_json().encode() + b"\n")
            head.stdin.flush()
            if self.job.workers > 1:
                for _ in range(self.workers):
                    self._start("--join", f"{self.job.host}:{self.job.port}")
        except OSError as error:
            self.stop()
            raise MissingError(f"Locust's process does not start: {error}") from None
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def pids(self) -> list[int]:
        """Of all of them, the one that talks first."""
        return [process.pid for process in self._all]

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *words],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL if words else subprocess.PIPE,
            stderr=self._errors, env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
        )  # fmt: skip
        self._all.append(process)
        return process

    def lines(self) -> Iterator[dict[str, Any]]:
        """What is told, but for signs of life. Raises InvalidRun if a process ends or all is silent."""
        out = self._all[0].stdout
        assert out is not None
        rest, began, heard, ready = b"", time.monotonic(), time.monotonic(), False
        while True:
            data = b"-"
            if select.select([out], [], [], 0.2)[0]:
                data = os.read(out.fileno(), 1 << 16)
                *whole, rest = (rest + data).split(b"\n")
                heard = time.monotonic() if data else heard
                for line in map(orjson.loads, whole):
                    ready = ready or line["t"] == READY
                    if line["t"] not in (ALIVE, READY):
                        yield line
            self._check(data == b"")
            if time.monotonic() - (heard if ready else began) > (SILENT_S if ready else START_S):
                what = f"is silent for {SILENT_S:g} s" if ready else f"has no programs after {START_S:g} s"
                raise InvalidRun(f"the Locust driver {what}; {self.words()}")

    def _check(self, ended: bool) -> None:
        """``ended``: the first one has said its last word. Workers leave with 0 when it does."""
        for process in self._all[:1] if ended else self._all[1:]:
            code = self._last(process) if ended else process.poll()
            if code is not None and (ended or code):
                name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                raise InvalidRun(
                    f"a process of the Locust driver ended before the run was over ({name}); {self.words()}"
                )

    def _last(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of one that talks no more. Raises InvalidRun if it stays."""
        try:
            return process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            raise InvalidRun(
                f"a process of the Locust driver says no more and does not end; {self.words()}"
            ) from None

    def words(self) -> str:
        """The last line that the processes wrote to stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"its last words: {lines[-1].strip()[-400:]}" if lines else "it said nothing"

    def stop(self) -> None:
        """End them all; idempotent. They end by themselves when the pipe closes, or are made to."""
        for process in self._all:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        deadline = time.monotonic() + GRACE_S
        for process in self._all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            process.kill()
            process.wait()
        self._errors.close()
