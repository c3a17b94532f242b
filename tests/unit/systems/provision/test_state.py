"""Who is in a fleet is written down: only those are ended, all of them, and never somebody else."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.owner import Owner, alive, boot, myself, owner
from systems.provision.state import Record, Standing, States, end, standing, strays
from tests.unit.systems.provision.fakes import HEALTHY, eventually, gone, python


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr("systems.provision.process.STOP_S", 0.6)


@pytest.fixture
def server(tmp_path):
    """One that outlives its starter, up; ended by its own object whatever the test did."""
    made = VllmServer(
        ServerOptions(Path("model")), tmp_path / "e0", python=python(tmp_path, HEALTHY), outlives=True
    )
    made.start()
    yield made
    made.stop()


def child_of(server):
    return int(server.output.read_text().split()[1])


def test_a_process_is_told_by_when_it_started():
    me = myself()
    assert alive(str(me))
    assert not alive(str(me._replace(start=me.start + 1)))
    assert not alive(str(me._replace(boot="another")))
    assert not alive("")
    assert not alive("1:2")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert owner(dead.pid) is None


def test_a_record_comes_back_as_it_was(tmp_path, server):
    states = States(tmp_path / "up")
    record = states.claim("a", "process", {"model": "tiny"})
    assert record.starting
    record.engines.append(standing(server))
    record.ready = True
    states.write(record)
    assert states.read("a") == record
    assert (states.names(), record.starting) == (["a"], False)
    assert record.standing() == record.engines
    assert record.engines[0].calls == str((tmp_path / "e0" / "calls.jsonl").resolve())
    with pytest.raises(FileExistsError):
        states.claim("a", "process", {})
    states.forget(record)
    states.forget(record)
    assert states.read("a") is None


def test_a_name_and_a_file_that_are_none(tmp_path):
    states = States(tmp_path)
    for name in ("", "../x", "a b", "-x", "x" * 50):
        with pytest.raises(ValueError, match="a fleet's name"):
            states.path(name)
    for text in ("", "{}", '{"engines": 3}', '{"engines": [], "what": 1}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(EngineUnavailable, match=r"a\.json is damaged"):
            states.read("a")


def test_all_of_an_engine_is_ended_once(server):
    said, child = [], child_of(server)
    record = Record("a", "a.1", "process", engines=[standing(server)])
    assert end(record, said.append) == 1
    assert gone(child)
    assert record.standing() == []
    assert said == [f"e0 at {server.url} is down"]
    assert end(record, said.append) == 0


def test_children_whose_first_process_was_killed_go_too(server):
    record = Record("a", "a.1", "process", engines=[standing(server)])
    child = child_of(server)
    os.kill(server.pid, 9)
    server._process.wait()
    assert strays(record.engines[0]) == [child]
    assert record.standing() == record.engines
    assert end(record, lambda _: None) == 1
    eventually(lambda: gone(child))


def test_a_recycled_number_is_left_alone(tmp_path):
    """The file names a process number which somebody else has now: as leader, or for his session."""
    other = subprocess.Popen(["sleep", "30"], start_new_session=True, cwd=tmp_path)
    try:
        was = owner(other.pid)
        earlier = Standing("e0", "http://x:1", "/somewhere", str(was._replace(start=was.start - 1)))
        before_boot = replace(earlier, folder=str(tmp_path), owner=str(was._replace(boot="another")))
        for one in (earlier, before_boot, Standing("e0", "http://x:1", "/somewhere")):
            record = Record("a", "a.1", "process", engines=[one])
            assert record.standing() == []
            assert end(record, lambda _: None) == 0
        assert other.poll() is None
        assert str(was) == str(Owner(other.pid, was.start, boot()))
    finally:
        other.kill()
        other.wait()
