import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from workloads.sandboxes import ledger as ledger_module
from workloads.sandboxes.contract import SandboxError
from workloads.sandboxes.ledger import Entry, Ledger, state_folder
from workloads.sandboxes.processes import Process

THIS = Process.this()
GONE = THIS._replace(start=THIS.start + 1)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path)


def entry(name, process=THIS, kind="process", owner="run"):
    return Entry(name, kind, owner, "/nowhere", process)


def test_what_is_entered_is_read(ledger):
    entered = ledger.enter(replace(entry("a"), container="c"), ports=2)
    assert len(entered.ports) == 2
    assert ledger.entries() == [entered]
    ledger.leave("a")
    ledger.leave("a")
    assert ledger.entries() == []


def test_a_name_is_given_once(ledger):
    ledger.enter(entry("a"))
    with pytest.raises(SandboxError, match="sandbox a: there is one of that name"):
        ledger.enter(entry("a"))


def test_ports_are_given_once(ledger):
    with ThreadPoolExecutor(8) as pool:
        dealt = list(pool.map(lambda i: ledger.enter(entry(f"s{i}"), ports=3).ports, range(20)))
    assert len({port for ports in dealt for port in ports}) == 60


def test_what_is_left(ledger):
    for each in (entry("a"), entry("b", GONE), entry("c", GONE, "bwrap"), entry("d", owner="other")):
        ledger.enter(each)
    assert [each.name for each in ledger.left("process")] == ["b"]
    assert [each.name for each in ledger.left("process", "run")] == ["a", "b"]
    assert [each.name for each in ledger.left("bwrap", "other")] == []


def test_which_processes_are_gone():
    assert not THIS.gone()
    assert GONE.gone()
    assert THIS._replace(boot="another").gone()
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert THIS._replace(pid=done.pid).gone()
    assert not GONE._replace(space="another").gone(), "nobody here can know"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "a"}', json.dumps({"process": 3})])
def test_a_file_that_is_no_entry_does_not_count(ledger, text):
    (ledger.folder / "bad.json").write_text(text)
    ledger.enter(entry("a"))
    assert [each.name for each in ledger.entries()] == ["a"]


def test_no_more_ports(ledger, monkeypatch):
    monkeypatch.setattr("workloads.sandboxes.ports.RANGE", range(20_000, 20_003))
    with pytest.raises(SandboxError, match=r"sandbox a: .*only \d of 4 TCP ports from 20000 to 20002"):
        ledger.enter(entry("a"), ports=4)
    assert ledger.entries() == []


def test_the_folder_is_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = state_folder()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(ledger_module.os, "getuid", lambda: 4_000_000)
    os.rename(folder.parent, tmp_path / "agent-serving-bench-4000000")
    with pytest.raises(SandboxError, match="is not ours"):
        state_folder()


def test_no_place_for_it(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(SandboxError, match="no place to note sandboxes: Not a directory"):
        state_folder()
