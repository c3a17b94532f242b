"""The agent host as a process: what it says, and that it leaves nothing when it has to go."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import orjson
import pytest

from tests.unit.workloads.agents.host_parts import HERE, there
from workloads.agents.contract import Budget
from workloads.agents.host import HostFailed, found
from workloads.agents.host_process import ROOT
from workloads.agents.job import OUTCOMES, Job


def job(tmp_path, how="well", n=6, suite="SUMS", agent="AGENT", **changed):
    fields = {"seed": 1, "concurrency": 3, "url": "http://127.0.0.1:1", "model": "m", "owner": "test-host"}
    fields |= {"sandbox": f"{HERE}:SANDBOX", "folder": str(tmp_path / "sandboxes"), **changed}
    parameters = {"how": how} if agent == "AGENT" else {}
    return Job(f"{HERE}:{agent}", f"{HERE}:{suite}", n, parameters=parameters, **fields)


@contextmanager
def host(line):
    process = subprocess.Popen(
        [sys.executable, "-m", "workloads.agents.host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        process.wait(10)


def run(line, code=0):
    """(its events, what it said on stderr)."""
    with host(line) as process:
        events = [orjson.loads(line) for line in process.stdout]
        said = process.stderr.read().decode()
        assert process.wait(10) == code, said
    return events, said


def of(events, kind):
    return [event for event in events if event["event"] == kind]


def ends(events):
    return {event["program"]: (event["outcome"], event["success"]) for event in of(events, "ended")}


def until_one_is_left(process):
    """Read on until two of three sandboxes are gone: program 1 hangs."""
    events = []
    while sum(event.get("what") == "teardown" for event in events) < 2:
        events.append(orjson.loads(process.stdout.readline()))
    return events


def test_a_job_from_ready_to_over(tmp_path):
    events, _ = run(job(tmp_path, suite="SUMS_IN_SANDBOX", how="in_sandbox", n=5).line())
    assert events[0]["event"] == "ready"
    assert events[0]["versions"]["python"]
    assert events[-1]["event"] == "over"
    assert events[-1]["leaks"] == []
    assert ends(events) == dict.fromkeys(range(5), ("finished", True))
    by_program = sorted(of(events, "sandbox"), key=lambda event: event["program"])
    for program, happened in groupby(by_program, key=lambda event: event["program"]):
        whats = [event["what"] for event in happened]
        assert whats == ["init", "exec", "teardown"], program
    assert [event["task"] for event in of(events, "began")] == [f"sum-{i}" for i in range(5)]
    assert len(of(events, "tool")) == sum(range(5))
    assert all(event["t"] <= event["t_end"] and event["ok"] for event in of(events, "tool"))
    assert list((tmp_path / "sandboxes").glob("*/*")) == []


def test_as_many_run_as_were_asked_for(tmp_path):
    events, _ = run(job(tmp_path, how="slowly", n=7).line())
    alive, most = 0, []
    for event in events:
        alive += {"began": 1, "ended": -1}.get(event["event"], 0)
        most.append(alive)
    assert max(most) == 3
    begun = [count for count, event in zip(most, events, strict=True) if event["event"] == "began"]
    assert begun[:2] == [1, 2]
    assert set(begun[2:]) <= {2, 3}


def test_a_program_that_breaks_is_an_event(tmp_path):
    events, said = run(job(tmp_path, how="raising", suite="SUMS_IN_SANDBOX", n=7).line())
    why = {event["program"]: event["why"] for event in of(events, "ended")}
    assert ends(events) == {
        0: ("finished", True), 1: ("failed", False), 2: ("failed", False), 3: ("failed", False),
        4: ("timeout", False), 5: ("failed", False), 6: ("finished", True),
    }  # fmt: skip
    assert {event["outcome"] for event in of(events, "ended")} <= set(OUTCOMES)
    assert why[1] == "RuntimeError: out of tea"
    assert why[2] == "call 3 of thread main was lost"
    assert why[3] == "the agent left with 'no more'"
    assert why[5].endswith("no room")
    assert "Traceback" in said
    assert events[-1]["leaks"] == []


def test_a_program_that_hangs_is_ended(tmp_path):
    events, _ = run(job(tmp_path, how="stuck", n=5, budget=Budget(seconds=0.3)).line())
    ended = {event["program"]: event for event in of(events, "ended")}
    assert {program for program in ended if ended[program]["outcome"] == "timeout"} == {1, 2, 3}
    assert {ended[program]["why"] for program in (1, 2, 3)} == {"it took more than 0.3 s"}
    assert ended[0]["success"]
    assert ended[4]["success"]


def test_what_guests_print_is_no_event(tmp_path):
    events, said = run(job(tmp_path, how="printing", n=2, concurrency=1).line())
    assert ends(events) == {0: ("finished", True), 1: ("finished", True)}
    assert "not an event" in said
    assert "nor this" in said


def test_a_tool_is_told_of_once_and_has_a_limit(tmp_path):
    events, _ = run(job(tmp_path, how="telling", n=1, budget=Budget(tool_s=0.2)).line())
    tools = [(event["thread"], event["name"], event["ok"]) for event in of(events, "tool")]
    assert tools == [
        ("side", "add", True), ("side", "think", True), ("main", "break", False), ("main", "hang", False)
    ]  # fmt: skip
    assert of(events, "tool")[-1]["t_end"] - of(events, "tool")[-1]["t"] < 1.0
    assert of(events, "ended")[0]["notes"] == {"thoughts": 1}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"suite": "NO_SUMS"}, ["there is no data", "the well"]),
        ({"suite": "NOTHING"}, ["NOTHING"]),
        ({"suite": "SUMS_IN_SANDBOX", "sandbox": "bwarp"}, ["bwarp", "bwrap"]),
        ({"suite": "SUMS_IN_SANDBOX", "sandbox": "nowhere:SANDBOX"}, ["nowhere"]),
    ],
)
def test_what_is_not_there(tmp_path, changed, words):
    with pytest.raises(HostFailed) as failed:
        found(job(tmp_path, **changed))
    assert all(word in str(failed.value) for word in words)


def test_a_job_that_cannot_be_done(tmp_path):
    events, _ = run(job(tmp_path, agent="NEEDY").line(), code=1)
    assert [event["event"] for event in events] == ["failed"]
    assert "no_such_module" in events[0]["why"]
    assert "make_agents.sh" in events[0]["why"]


@pytest.mark.parametrize("line", ["", '{"agent": 1, "colour": 2}'])
def test_what_is_no_job(line):
    events, said = run(line, code=2)
    assert [event["event"] for event in events] == ["failed"]
    assert said == ""


@pytest.mark.parametrize("how", ["eof", signal.SIGTERM, signal.SIGINT])
def test_told_to_leave_it_tears_down(tmp_path, how):
    asked = job(tmp_path, how="hanging", suite="SUMS_IN_SANDBOX", n=3)
    with host(asked.line()) as process:
        events = until_one_is_left(process)
        assert [name.rpartition("-")[2] for name in there(asked.folder)] == ["1"]
        begin = time.monotonic()
        process.stdin.close() if how == "eof" else process.send_signal(how)
        events += [orjson.loads(line) for line in process.stdout]
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 5
    assert events[-1]["event"] == "over"
    ended = next(event for event in events if event["event"] == "ended" and event["program"] == 1)
    assert ended["why"] == "the host was told to stop"
    assert there(asked.folder) == []


def test_it_ends_with_its_parent(tmp_path):
    """Killed, a parent can tell it nothing; another process may even hold its end of the pipe."""
    asked = job(tmp_path, how="hanging", suite="SUMS_IN_SANDBOX", n=3)
    script = (
        "import os, subprocess, sys, time\n"
        "read, write = os.pipe()\n"
        "child = subprocess.Popen([sys.executable, '-m', 'workloads.agents.host'], stdin=read)\n"
        "os.write(write, sys.argv[1].encode() + b'\\n')\n"
        "holder = subprocess.Popen(['sleep', '20'], pass_fds=[write], stdout=subprocess.DEVNULL)\n"
        'print(\'{"event": "pids", "pids": [%d, %d]}\' % (child.pid, holder.pid), flush=True)\n'
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, asked.line()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    with parent:
        events = until_one_is_left(parent)
        assert [name.rpartition("-")[2] for name in there(asked.folder)] == ["1"]
        parent.kill()
        events += [orjson.loads(line) for line in parent.stdout]  # until the host has closed it
    assert events[-1]["event"] == "over"
    assert there(asked.folder) == []
    pid, holder = of(events, "pids")[0]["pids"]
    os.kill(holder, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
