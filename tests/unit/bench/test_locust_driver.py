"""Locust as the driver, against a streaming server on the loopback, beside the asyncio driver."""

import asyncio
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.arriving import arriving, program_hash
from bench.config import RunConfig
from bench.drivers.calls import CallFailed, Chunks, Request
from bench.drivers.completions import Completions
from bench.drivers.effects import ProgramError
from bench.drivers.live import drive_live
from bench.drivers.live_records import Leg, LiveCall, LiveProgram
from bench.drivers.locust import run as locust_run
from bench.drivers.locust.greenlets import GreenletDriver
from bench.drivers.locust.job import Job, Recipe, call_of, program_of, rows
from bench.drivers.locust.run import Processes, drive_locust, most_open
from bench.drivers.locust.stream import FreshClients, Streams
from bench.drivers.token_ids import TokenIds
from bench.errors import InvalidRun, MissingError, UsageError
from bench.plan import plan
from systems.engines.vllm_server import free_port
from workloads.base import ProgramSpec
from workloads.session import TimedOut

VOCABULARY = 1000


class Server:
    """Streams replies as vLLM does, 10 ms a token where more than 50 are asked for; remembers its calls.

    Tokens follow from the sum of the prompt. ``faults``: call name -> refuse, break, hang, error.
    No reply begins before ``opens()``; bounded, so that a test fails and does not hang."""

    def __init__(self):
        self.asked, self.faults, self.gone, self.headers = {}, {}, [], {}
        self.opens = lambda: True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                name = self.headers["X-Request-Id"]
                outer.asked[name], outer.headers[name] = body, dict(self.headers)
                try:
                    outer.answer(self, name, body)
                except OSError:
                    outer.gone.append(name)
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, handler, name, body):
        fault, n, prompt = self.faults.get(name), body["max_tokens"], body["prompt"]
        if fault == "refuse":
            handler.send_error(400, "prompt is too long")
            return
        until = time.monotonic() + 60
        while not self.opens() and time.monotonic() < until:
            time.sleep(0.02)
        tokens = [(sum(prompt) + i) % VOCABULARY for i in range(n)]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": n}
        handler.send_response(200)
        if not body.get("stream"):
            time.sleep(0.01 * n if n > 50 else 0.0)
            text = json.dumps({"choices": [{"token_ids": tokens}], "usage": usage}).encode()
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)
            return
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        self.stream(handler, tokens, usage, fault)

    def stream(self, handler, tokens, usage, fault):
        for i, token in enumerate(tokens):
            if i == 1 and fault == "break":
                handler.close_connection = True
                return
            if i == 1 and fault == "error":
                self.event(handler, {"error": {"message": "the engine died"}})
            time.sleep(60 if i == 1 and fault == "hang" else 0.01 if len(tokens) > 50 else 0.0)
            reason = "length" if i == len(tokens) - 1 else None
            self.event(handler, {"choices": [{"token_ids": [token], "finish_reason": reason}]})
        self.event(handler, {"choices": [], "usage": usage})
        self.event(handler, "[DONE]")
        handler.wfile.write(b"0\r\n\r\n")

    def event(self, handler, data):
        line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server():
    with Server() as server:
        yield server


def recipe(workload, n, seed=5, **parameters):
    """(recipe, programs, times): they arrive 20 ms apart, whatever the workload's rate is."""
    config = RunConfig("autellix", workload, n=n, seed=seed, parameters={"token_scale": "1/16", **parameters})
    programs, _ = arriving(config, 4096, "")
    times = [0.02 * i for i in range(n)]
    return Recipe(config, program_hash(programs, times), 4096), programs, times


def by_locust(server, made, times, **options):
    said = {"vocabulary": VOCABULARY, "salt": "s", "cache_salt": "c", "run": "r"}
    return drive_locust(made, times, server.url, "tiny", **said | options)


def by_asyncio(server, specs, times):
    async def go():
        async with Completions(server.url, "tiny") as client:
            ids = TokenIds(VOCABULARY, "s")
            return await drive_live(specs, times, client, ids, run="r", cache_salt="c")

    return asyncio.run(go())


def shape(live):
    """What must be equal: programs, calls, and what they were answered; times are not."""
    programs = [(p.program, p.kind, p.t_sched, p.outcome, p.calls, p.threads) for p in live.programs]
    calls = sorted(
        (c.name, c.program, c.thread, c.index, c.prompt_tokens, c.outcome, c.parents) for c in live.calls
    )
    return programs, calls, live.said()


def bodies(server):
    """What was asked since the last time, by call, but for how the reply is to come."""
    asked, server.asked = server.asked, {}
    return {
        name: {key: value for key, value in body.items() if not key.startswith("stream")}
        for name, body in asked.items()
    }


# -- whole runs: Locust in processes of its own --------------------------------------


def test_the_same_programs_as_the_asyncio_driver(server):
    made, programs, times = recipe("mixed", 4, seed=9, **{"mcts.iterations": "1", "mcts.tool_s": "0.01"})
    assert {spec.kind for spec in programs.programs} == {"chatbot", "react", "mcts"}
    ended = []
    live = by_locust(server, made, times, over=ended.append)
    asked = bodies(server)
    twin = by_asyncio(server, programs.programs, times)
    assert shape(live) == shape(twin)
    assert asked == bodies(server)
    assert len(asked) == len(live.calls) > 20
    assert sorted(ended) == [f"r.{i}" for i in range(4)]
    for call in live.calls:
        assert 0 <= call.t_sched <= call.t_send <= call.t_first <= call.t_last <= live.took
    assert abs(live.wall - time.time()) < 120
    assert 0 < live.audit.cpu < 1.2
    assert live.audit.rss_mb > 20


@pytest.fixture
def joined():
    """Workers that a test starts: none outlives it, however it ends."""
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_two_workers_share_the_programs_and_each_runs_once(server, joined):
    """One of them joins as it would from another machine; a front is told whose calls they are."""
    made, programs, times = recipe("mapreduce", 3)
    place = f"127.0.0.1:{free_port()}"

    def join(said):
        assert said == f"1 more workers: python -m bench.drivers.locust --join {place}"
        command = [sys.executable, *said.split()[4:]]
        quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        joined.extend(subprocess.Popen(command, **quiet) for _ in range(2))  # one too many

    # The run lasts until one of the three was sent away: one that comes after it finds no master.
    server.opens = lambda: len(children()) < 4  # the head and three workers

    live = by_locust(
        server, made, times, remote=1, listen=place, say=join, front="smg", front_knobs={"policy": "manual"}
    )
    assert [process.wait(timeout=20) for process in joined] == [0, 0]
    assert {headers["X-SMG-Routing-Key"] for headers in server.headers.values()} == {"r.0", "r.1", "r.2"}
    asked = bodies(server)
    assert shape(live) == shape(by_asyncio(server, programs.programs, times))
    assert asked == bodies(server)
    assert [row.program for row in live.programs] == [0, 1, 2]


@pytest.fixture
def watched(monkeypatch):
    """The processes of every run, for a look at what is left of them."""
    started = []

    class Watched(Processes):
        def __exit__(self, *error):
            started.extend(self._all)
            super().__exit__(*error)

    monkeypatch.setattr(locust_run, "Processes", Watched)
    return started


def test_a_call_that_fails_names_itself_and_nothing_is_left(server, watched):
    made, _, times = recipe("chatbot", 2)
    server.faults["r.1..0"] = "refuse"
    asked, ended = [], []
    with pytest.raises(CallFailed, match=r"call r\.1\.\.0: the server answers 400: .*prompt is too long"):
        by_locust(server, made, times, watch=lambda: asked.append(1), over=ended.append)
    assert (asked, sorted(ended)) == ([1], ["r.0", "r.1"])
    assert [process.poll() is not None for process in watched] == [True]


def test_programs_are_over_when_nothing_sends_their_calls_any_more(server):
    """What died is asked for first."""
    made, _, times = recipe("chatbot", 2)
    server.faults |= {"r.0..0": "hang", "r.1..0": "refuse"}
    told = []

    def watch():
        told.append(("watch", len(children())))
        raise MissingError("the server died")

    with pytest.raises(MissingError, match="the server died"):
        by_locust(server, made, times, watch=watch, over=lambda name: told.append((name, len(children()))))
    assert told == [("watch", 1), ("r.0", 0), ("r.1", 0)]


def test_a_process_that_closes_its_mouth_and_stays(server, watched, monkeypatch, tmp_path):
    made, _, times = recipe("chatbot", 1)
    (tmp_path / "mute.py").write_text("import os, time\nos.close(1)\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(locust_run, "MODULE", "mute")
    monkeypatch.setattr(locust_run, "GRACE_S", 0.2)
    with pytest.raises(InvalidRun, match="says no more and does not end; it said nothing"):
        by_locust(server, made, times)
    assert [process.poll() is not None for process in watched] == [True]


def test_the_page_counts_and_a_process_that_is_killed_ends_the_run(server, watched):
    made, _, times = recipe("chatbot", 2)
    server.faults["r.1..0"] = "hang"
    pages, stats = [], []

    def kill(name):
        """Program 0 is over, program 1 hangs."""
        if name != "r.0":
            return  # told of it when the run has failed
        with urllib.request.urlopen(f"{pages[0].split()[-1]}/stats/requests", timeout=5) as answer:
            stats.extend(json.load(answer)["stats"])
        os.kill(children()[0], signal.SIGKILL)

    with pytest.raises(InvalidRun, match=r"ended before the run was over \(SIGKILL\)"):
        by_locust(server, made, times, over=kill, web=0, say=pages.append)
    counted = {row["method"]: row["num_requests"] for row in stats if row["name"] == "chatbot"}
    assert counted["program"] == 1
    assert counted["call"] == counted["first token"] == sum(name.startswith("r.0.") for name in server.asked)
    assert [process.poll() is not None for process in watched] == [True]


def test_ctrl_c_leaves_nothing(server, watched):
    made, _, times = recipe("mapreduce", 2)
    server.faults["r.1.0.0"] = "hang"

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        by_locust(server, made, times, over=interrupt)
    assert [process.poll() is not None for process in watched] == [True]
    assert children() == []


def children():
    """Pids of our children that run Locust."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    line = file.read()
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"bench.drivers.locust" in line and parent == os.getpid():
                found.append(int(entry))
    return found


# -- programs as greenlets, in this process ------------------------------------------


class Rows:
    """Keeps what a driver tells."""

    def __init__(self):
        self.programs, self.calls, self.failed = [], [], []

    def called(self, kind, call, seconds, error):
        self.failed += [str(error)] if error else []

    def ended(self, program, calls):
        self.programs.append(program)
        self.calls.extend(calls)


def greenlets(server, *programs, limit_s=20.0):
    specs = [ProgramSpec(i, "test", 1000 + i, program) for i, program in enumerate(programs)]
    found = Rows()
    client = Streams(FreshClients(limit_s), server.url, "tiny", limit_s)
    driver = GreenletDriver(client, TokenIds(VOCABULARY, "s"), "r", "c", found, time.monotonic())
    driver.run(specs, [0.0] * len(specs))
    found.programs.sort(key=lambda row: row.program)
    return found


async def one(s, output=2):
    return await s.call(new=5, output=output)


async def forks(s):
    await s.call(new=10, output=4)
    await s.tool("search", 0.02)
    for reply in await s.join(*(one(s.fork(), 3 + i) for i in range(3))):
        s.add((reply.output_id, reply.output_tokens))
    await s.think(0.01)
    await s.call(new=1, output=1)


async def gives_up(s):
    with pytest.raises(TimedOut, match=r"no result within 0\.1 s"):
        await s.timeout(0.1, one(s.fork(), 200))
    try:
        await s.timeout(0.1, s.fork().join(one(s.fork(), 200), one(s.fork(), 200)))
    except TimedOut:
        await s.call(new=1, output=1)


async def cancels(s):
    await s.spawn(one(s.fork(detached=True)))
    doomed = await s.spawn(one(s.fork(detached=True), 200))
    await s.tool("wait", 0.1)
    await s.cancel(doomed)
    await s.think(0.05)
    assert doomed.done


async def leaves(s):
    await s.spawn(one(s.fork(detached=True), 200))
    await s.tool("wait", 0.1)
    await s.abandon()


def test_every_effect_does_what_it_does_in_asyncio(server):
    programs = [forks, gives_up, cancels, leaves]
    found = greenlets(server, *programs)
    asked = bodies(server)
    specs = [ProgramSpec(i, "test", 1000 + i, program) for i, program in enumerate(programs)]
    twin = by_asyncio(server, specs, [0.0] * 4)
    assert asked == bodies(server)
    rows_of = lambda calls: sorted((c.name, c.outcome, c.tokens, c.parents) for c in calls)  # noqa: E731
    assert rows_of(found.calls) == rows_of(twin.calls)
    what = lambda rows: [(p.program, p.outcome, p.calls, p.threads) for p in rows]  # noqa: E731
    assert what(found.programs) == what(twin.programs)
    assert [p.outcome for p in found.programs] == ["finished"] * 3 + ["abandoned"]
    assert len([c for c in found.calls if c.outcome == "cut"]) == 5
    gone = {c.name for c in found.calls if c.outcome == "cut"}
    deadline = time.monotonic() + 5
    while not gone <= set(server.gone) and time.monotonic() < deadline:
        time.sleep(0.01)  # the server notices with its next token
    assert gone <= set(server.gone)


def test_a_path_is_the_branch_that_ended_last(server):
    async def branch(s, seconds):
        await s.tool("search", seconds)

    async def root(s):
        await s.call(new=5, output=1)
        await s.join(branch(s.fork(), 0.05), branch(s.fork(), 0.001))

    (program,) = greenlets(server, root).programs
    tool, call = program.path
    assert call == Leg("r.0..0")
    assert 0.04 < tool.tool_s <= 0.05
    assert program.threads == 3
    assert 0.05 < program.tool_s < 0.06


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("refuse", r"call r\.0\.\.0: the server answers 400: .*too long"),
        ("break", r"call r\.0\.\.0: "),
        ("error", r"call r\.0\.\.0: .*the engine died"),
        ("hang", r"call r\.0\.\.0: no reply within 0\.3 s"),
    ],
)
def test_a_reply_that_is_none(server, fault, message):
    server.faults["r.0..0"] = fault
    with pytest.raises(CallFailed, match=message):
        greenlets(server, one, limit_s=0.3)


def test_a_server_that_is_not_there():
    client = Streams(FreshClients(5.0), "http://127.0.0.1:9", "tiny", 5.0)
    with pytest.raises(CallFailed, match=r"call r\.0\.\.0: ConnectionRefusedError"):
        client.complete(Request("r.0..0", [1], 1))


def test_a_program_that_raises_and_a_wait_that_is_none(server):
    async def bad(s):
        raise KeyError("lost")

    async def endless(s):
        await s.think(math.nan)

    with pytest.raises(ProgramError, match=r"program 1 \(test\) raised KeyError: 'lost'"):
        greenlets(server, one, bad)
    with pytest.raises(ProgramError, match=r"program 0 \(test\) waits for nan s"):
        greenlets(server, endless)


def test_connections_that_were_idle_for_long_are_not_used_again(server, monkeypatch):
    from bench.drivers.locust import stream

    client = Streams(FreshClients(5.0), server.url, "tiny", 5.0)
    made = []
    connect = client.client._connection_pool._create_socket
    monkeypatch.setattr(client.client._connection_pool, "_create_socket", lambda: made.append(1) or connect())
    for _ in range(2):
        client.complete(Request("r.0..0", [1], 1))
    assert made == [1]
    monkeypatch.setattr(stream, "KEEP_ALIVE_S", -1.0)
    client.complete(Request("r.0..0", [1], 1))
    assert made == [1, 1]


# -- what is told --------------------------------------------------------------------


def test_the_hash_is_the_plans_and_other_programs_are_refused():
    made, _, times = recipe("chatbot", 3)
    assert [spec.index for spec in made.programs(times)] == [0, 1, 2]
    planned = plan(RunConfig("autellix", "chatbot", n=3, seed=5))
    assert program_hash(planned.programs, planned.times) == planned.program_hash
    with pytest.raises(InvalidRun, match="makes other programs of the configuration"):
        made.programs([time + 1 for time in times])
    with pytest.raises(InvalidRun, match="makes 3 programs of the configuration, and 2 are to arrive"):
        made.programs(times[:2])


def test_a_job_and_rows_survive_the_way():
    made, _, times = recipe("chatbot", 2)
    job = Job(made, tuple(times), "http://u", "m", 10, "s", "r", "", 2, None, 5.0, "127.0.0.1", 5)
    assert Job.parse(job.as_json()) == job
    call = LiveCall(1, "0.1", 2, "r.1.0_1.2", 0.1, 0.1, 0.2, 0.3, 0.4, 7, (1, 2), parents=(("", 0),),
                    chunks=Chunks([(0.3, 1), (0.4, 1)]))  # fmt: skip
    cut = LiveCall(1, "", 0, "r.1..0", 0.1, 0.1, 0.2, math.nan, 0.4, 7, (), "cut")
    program = LiveProgram(0, "k", 0.0, 0.0, 1.0, "finished", 1, path=(Leg("r.0..0"), Leg("", 1.0)))
    told = json.loads(rows([program], [call, cut]))
    back, gone = map(call_of, told["calls"])
    assert list(back.chunks) == list(call.chunks)
    assert replace(back, chunks=call.chunks) == call
    assert math.isnan(gone.t_first)
    assert (gone.outcome, gone.tokens, gone.answered) == ("cut", (), False)
    assert program_of(told["programs"][0]) == program
    assert program_of(told["programs"][0]).path[1].tool_s == 1.0


def test_calls_in_flight():
    def call(sent, last):
        return LiveCall(0, "", 0, "", 0, 0, sent, sent, last, 1, (1,))

    assert most_open([]) == 0
    assert most_open([call(0, 2), call(1, 3), call(2, 4), call(5, 6)]) == 2


def test_without_locust_and_without_workers(monkeypatch):
    made, _, times = recipe("chatbot", 1)
    asked = {"vocabulary": 10, "salt": ""}
    with pytest.raises(UsageError, match="at least 1 worker"):
        drive_locust(made, times, "http://127.0.0.1:9", "m", workers=0, **asked)
    with pytest.raises(UsageError, match="HOST:PORT; got 'here'"):
        drive_locust(made, times, "http://127.0.0.1:9", "m", remote=1, listen="here", **asked)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="cannot have port"):
        drive_locust(made, times, "http://127.0.0.1:9", "m", web=taken.getsockname()[1], **asked)
    monkeypatch.setattr(locust_run, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match="needs Locust"):
        drive_locust(made, times, "http://127.0.0.1:9", "m", **asked)
