"""A process of the Locust driver: Locust's master with its page, a worker, or both in one."""

from __future__ import annotations

import argparse
import json
import logging
import os
import stat
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gevent
from gevent.event import Event
from gevent.os import make_nonblocking, nb_write, tp_read
from gevent.queue import Queue
from locust import FastHttpUser, runners, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import STATE_MISSING

from bench.drivers.audit import peak_rss_mb
from bench.drivers.calls import CallFailed
from bench.drivers.live_records import LiveCall, LiveProgram
from bench.drivers.locust.greenlets import GreenletDriver
from bench.drivers.locust.job import ALIVE, ENDED, ERRORS, FAILED, OVER, READY, ROWS, WEB, Job, rows
from bench.drivers.locust.stream import FreshClients, Headers, Streams, no_headers
from bench.drivers.token_ids import TokenIds
from bench.errors import InvalidRun
from systems.slots import policy_class
from workloads.base import ProgramSpec

START_IN_S = 0.5
"""From when all workers are ready to time 0 of the run: a message must reach them all before."""
LIVENESS = 60
"""Seconds without a sign after which the master gives a worker up: one that builds programs is silent."""
HELLO, TAKE, START = "bench_hello", "bench_take", "bench_start"
"""Messages between master and workers, beside those of ``job``."""

Tell = Callable[[str, Any], None]
"""(kind, data): to the parent, by way of the master if there is one. Data: an object, or a line as it is."""


def failure(error: Exception) -> dict[str, str]:
    """An error as it is told; the parent raises those it knows again."""
    known = type(error).__name__ in ERRORS
    return {
        "kind": type(error).__name__,
        "message": str(error) if known else f"{type(error).__name__}: {error}",
    }


class Programs(FastHttpUser):
    """One in every worker, for what Locust counts: it lasts as long as this worker's programs."""

    share: Share

    @task
    def wait_for_programs(self) -> None:
        """They have a dispatcher of their own: Locust moves users about when workers come and go."""
        self.share.dispatcher.join()
        raise StopUser


class Share:
    """A worker's part of a run."""

    def __init__(self, job: Job, index: int, environment: Environment, tell: Tell) -> None:
        self.job = job
        self.index = index
        self.environment = environment
        self.tell = tell
        self.headers: Headers = no_headers
        if job.front:
            self.headers = policy_class("front", job.front, "Locust's process")(**job.front_knobs).headers
        specs = job.recipe.programs(job.times)
        self.specs: Sequence[ProgramSpec] = specs[index :: job.workers]
        self.programs: list[LiveProgram] = []
        self.calls: list[LiveCall] = []
        self.dispatcher = gevent.Greenlet(self._guarded)
        events: Any = environment.events
        events.test_stop.add_listener(self._stopped)

    def begin(self, at: float) -> None:
        """Run all of it; time 0 is the Unix time ``at`` (s), for workers may be on several machines.

        Tells ENDED for each program, and then ROWS and OVER; or FAILED.
        """
        self.begins = at
        self.dispatcher.start()

    def _stopped(self, environment: Environment) -> None:  # noqa: ARG002
        if not self.dispatcher.ready():
            self.dispatcher.kill()
            stopped = InvalidRun("Locust stopped the run before it was over (Stop on its page)")
            self.tell(FAILED, failure(stopped))

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.tell(FAILED, failure(error))

    def _run(self) -> None:
        job, begins = self.job, self.begins
        origin = time.monotonic() + begins - time.time()
        client = Streams(FreshClients(job.limit_s), job.url, job.model, job.limit_s, self.headers)
        ids = TokenIds(job.vocabulary, job.salt)
        driver = GreenletDriver(client, ids, job.run, job.cache_salt, self, origin)
        gevent.sleep(max(0.0, -driver.now()))
        cpu = time.process_time()
        driver.run(self.specs, job.times[self.index :: job.workers])
        took = driver.now()
        share = (time.process_time() - cpu) / max(took, 1e-9)
        self._send_rows()
        over = {"index": self.index, "wall": begins, "origin": origin, "took": took, "cpu": share}
        self.tell(OVER, over | {"lags": driver.loop_lags, "rss_mb": peak_rss_mb()})

    def _send_rows(self) -> None:
        """Once all is over: making them while programs run would hold those up."""
        of: dict[int, list[LiveCall]] = {}
        for call in self.calls:
            of.setdefault(call.program, []).append(call)
        for program in self.programs:
            self.tell(ROWS, rows([program], of.get(program.program, [])))

    def called(self, kind: str, call: LiveCall | None, seconds: float, error: CallFailed | None) -> None:
        """Locust's statistics: a call, and the time to its first token."""
        self._event("call", kind, seconds, error)
        if call is not None:
            self._event("first token", kind, call.t_first - call.t_send)

    def ended(self, program: LiveProgram, calls: Sequence[LiveCall]) -> None:
        """Locust's statistics; the rows are kept."""
        self._event("program", program.kind, program.t_end - program.t_sched)
        self.programs.append(program)
        self.calls.extend(calls)
        self.tell(ENDED, {"program": program.program})

    def _event(self, what: str, name: str, seconds: float, error: Exception | None = None) -> None:
        happened: Any = self.environment.events.request
        happened.fire(
            request_type=what, name=name, response_time=seconds * 1e3, response_length=0,
            exception=error, context={},
        )  # fmt: skip


# -- the process that the parent talks to --------------------------------------------


class Head:
    """Locust's master, or the only worker: it says on ``out`` what happens."""

    def __init__(self, job: Job, out: int) -> None:
        self.job = job
        self.out = out
        make_nonblocking(out)
        self._lines = Queue()
        self._writer = gevent.spawn(self._write)
        self.environment = Environment(user_classes=[Programs], host=job.url)
        self.numbers: dict[str, int] = {}
        self.ready: set[int] = set()
        self.over = 0
        self.done = Event()

    def say(self, kind: str, data: Mapping[str, Any] | bytes) -> None:
        """One line. It waits in a queue: writing must not hold up the run while the parent is busy."""
        line = data if isinstance(data, bytes) else json.dumps({"t": kind, **data}).encode()
        self._lines.put(line + b"\n")

    def _write(self) -> None:
        for line in self._lines:
            while line:
                line = line[nb_write(self.out, line) :]

    def close(self) -> None:
        """When all lines are written."""
        self._lines.put(StopIteration)
        self._writer.join()

    def run(self) -> None:
        """Until every worker is done, or one failed."""
        job = self.job
        runner: Any = (
            self.environment.create_local_runner()
            if job.workers == 1
            else self.environment.create_master_runner(job.host, job.port)
        )
        for kind in (ENDED, ROWS, OVER, FAILED, READY):
            runner.register_message(kind, self._told)
        page = self._page()
        gevent.spawn(self._breathe, runner)
        if job.workers == 1:
            Programs.share = Share(job, 0, self.environment, runner.send_message)
            self.say(READY, {})
            Programs.share.begin(time.time() + START_IN_S)
            runner.start(1, spawn_rate=1)
        else:
            runner.register_message(HELLO, self._take)
        self.done.wait()
        runner.quit()
        if page is not None:
            page.stop()

    def _page(self) -> Any:
        if self.job.web is None:
            return None
        page: Any = self.environment.create_web_ui("127.0.0.1", self.job.web, delayed_start=True)
        page.start()
        self.say(WEB, {"url": f"http://127.0.0.1:{self.job.web}"})
        return page

    def _breathe(self, runner: Any) -> None:
        """Signs of life, while all workers give theirs."""
        while True:
            self.say(ALIVE, {})
            gevent.sleep(1.0)
            gone = [one.id for one in getattr(runner, "clients", {}).values() if one.state == STATE_MISSING]
            if gone:
                text = f"worker {gone[0]} of the Locust driver gives no sign for {LIVENESS} s"
                self.say(FAILED, failure(InvalidRun(text)))
                self.done.set()

    def _take(self, environment: Environment, msg: Any) -> None:
        """A worker is there: it gets the job and its number. One too many may go."""
        runner: Any = environment.runner
        index = self.numbers.setdefault(msg.node_id, len(self.numbers))
        if index < self.job.workers:
            runner.send_message(TAKE, {"job": self.job.as_json(), "index": index}, client_id=msg.node_id)
        else:
            runner.send_message("quit", client_id=msg.node_id)
            runner.clients.pop(msg.node_id, None)

    def _told(self, environment: Environment, msg: Any) -> None:
        runner: Any = environment.runner
        if msg.type == READY:
            self.ready.add(msg.data["index"])
            if len(self.ready) == self.job.workers:
                self.say(READY, {})
                runner.send_message(START, {"at": time.time() + START_IN_S})
                gevent.spawn(runner.start, self.job.workers, self.job.workers)
            return
        self.say(msg.type, msg.data)
        self.over += msg.type == OVER
        if msg.type == FAILED or self.over == self.job.workers:
            self.done.set()


# -- a worker of a master ------------------------------------------------------------


def _work(host: str, port: int) -> None:
    """Join a master, take a share of the run, and leave when the master does."""
    environment = Environment(user_classes=[Programs])
    runner: Any = environment.create_worker_runner(host, port)

    def take(environment: Environment, msg: Any) -> None:
        try:
            job = Job.parse(msg.data["job"])
            Programs.share = Share(job, msg.data["index"], environment, runner.send_message)
        except Exception as error:  # Locust would log it and wait for ever
            runner.send_message(FAILED, failure(error))
            return
        runner.send_message(READY, {"index": msg.data["index"]})

    runner.register_message(TAKE, take)
    runner.register_message(START, lambda environment, msg: Programs.share.begin(msg.data["at"]))  # noqa: ARG005
    heard = time.monotonic()

    def hears(client_id: str, timestamp: float) -> None:  # noqa: ARG001
        nonlocal heard
        heard = time.monotonic()

    events: Any = environment.events
    events.heartbeat_received.add_listener(hears)
    runner.send_message(HELLO, {})
    while not runner.greenlet.join(timeout=1.0):
        if time.monotonic() - heard > LIVENESS:
            _leave(f"the master at {host}:{port} gives no sign for {LIVENESS} s")


def _leave(why: str = "") -> None:
    """End now: sockets to one that is gone would keep the interpreter waiting."""
    if why:
        print(why, file=sys.stderr, flush=True)
    os._exit(bool(why))


def _leash() -> None:
    """End with the parent, whose end of our stdin closes when it is gone."""
    while tp_read(0, 1 << 12):
        pass
    _leave()


def main() -> None:
    """See ``__main__``."""
    parser = argparse.ArgumentParser(prog="python -m bench.drivers.locust")
    parser.add_argument("--join", metavar="HOST:PORT", help="work for the master there")
    join = parser.parse_args().join
    out = os.dup(1)
    os.dup2(2, 1)  # what a program prints is no message
    sys.path.append(os.getcwd())
    logging.basicConfig(level=logging.ERROR)
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of programs that were cut off
    runners.HEARTBEAT_LIVENESS = LIVENESS
    job = "" if join else sys.stdin.readline()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        gevent.spawn(_leash)
    if join:
        host, _, port = join.rpartition(":")
        _work(host, int(port))
        _leave()
    head = Head(Job.parse(job), out)
    try:
        head.run()
    except Exception as error:
        head.say(FAILED, failure(error))
    head.close()
    _leave()
