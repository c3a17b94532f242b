"""What a host leaves is looked for whether there are sandboxes or not; programs may share one."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.workloads.agents.host_parts import HERE
from tests.unit.workloads.agents.test_host import ends, job, of, run
from workloads.agents import remains as module
from workloads.agents.remains import remains


def running(words):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if words in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
        except OSError:
            continue
    return found


def test_processes_and_files_of_agents_without_sandboxes_are_leaks(tmp_path):
    asked = job(tmp_path, how="leaving", n=1)
    Path(asked.folder).mkdir()
    (Path(asked.folder) / "left").mkdir()
    events, _ = run(asked.line())
    leaks = events[-1]["leaks"]
    processes = [line for line in leaks if line.startswith("process ")]
    assert len(processes) == 2, leaks
    assert {line.split()[2] for line in processes} == {"sleep"}
    assert [line for line in leaks if line not in processes] == ["folder left"]
    for line in processes:
        assert running(line.split()[3].encode()) == [], "it is said, and ended"


def test_guards_are_no_leak_and_nothing_is_one_where_nothing_is_left(tmp_path):
    asked = job(tmp_path, how="well", suite="SUMS_IN_SANDBOX", n=2, sandbox="process")
    events, _ = run(asked.line())
    assert events[-1]["leaks"] == []


def test_a_search_that_breaks_is_a_line_and_loses_no_run(monkeypatch, tmp_path):
    def broken(*_, **__):
        raise RuntimeError("500 boom")

    monkeypatch.setattr(module, "leaks", broken)
    monkeypatch.setattr(module, "below", lambda pid: set())
    found = asyncio.run(remains(tmp_path, "me", (), None))
    assert found == ["what sandboxes left could not be looked for: RuntimeError: 500 boom"]


def test_a_port_that_stays_open_is_found_by_the_ports_that_were_dealt(tmp_path):
    asked = job(tmp_path, suite="SUMS_IN_SANDBOX", n=1, sandbox=f"{HERE}:PORT_LEFT")
    events, _ = run(asked.line())
    (port,) = of(events, "sandbox")[0]["ports"]
    assert events[-1]["leaks"] == [f"port {port}: somebody listens"]


@pytest.mark.parametrize("share", [2, 3])
def test_programs_share_sandboxes(tmp_path, share):
    asked = job(
        tmp_path, how="in_its_folder", suite="SUMS_IN_SANDBOX", n=4, sandbox="process", share=share,
        concurrency=4, limits={"ports": 1},
    )  # fmt: skip
    events, said = run(asked.line())
    assert ends(events) == dict.fromkeys(range(4), ("finished", True)), said
    told = of(events, "sandbox")
    boxes = Counter((event["what"], event["sandbox"].rpartition("-")[2]) for event in told)
    for number, programs in enumerate([2, 2] if share == 2 else [3, 1]):
        counts = {what: boxes[what, str(number)] for what in ("init", "share", "unshare", "teardown")}
        assert counts == {"init": 1, "share": programs, "unshare": programs, "teardown": 1}
    most = max(int(event["detail"]) for event in told if event["what"] == "share")
    assert most == share
    assert {len(event["ports"]) for event in told if event["what"] == "share"} == {1}
    assert events[-1]["leaks"] == []
