"""The control channel without vLLM: sockets, messages, programs that end."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from systems.vllm_host.callers import AHEAD, Callers
from systems.vllm_host.control import LIMIT, Channel, Client
from systems.vllm_host.desk import Desk
from vocabulary import INF


class Keeper:
    """Records what it is told."""

    def __init__(self):
        self.did, self.pins, self.count = [], {}, {"hits": 3}

    def reclaimable(self):
        return 0

    def pinned_blocks(self):
        return 0

    def retain(self, *arguments):
        self.did.append(("retain", *arguments))
        return 5

    def __getattr__(self, name):
        def note(program):
            self.did.append((name, program))
            return 1

        return note


@pytest.fixture
def desk():
    callers = Callers()
    callers.identify({"program_id": "a"}, 10)
    callers.identify({"program_id": 7}, 10)
    ended = []
    desk = Desk(callers, Keeper(), lambda: 100.0, ended.append)
    desk.callers, desk.keeper, desk.ended = callers, desk._keeper, ended
    return desk


def test_messages_reach_the_keeper_by_the_programs_number(desk):
    assert desk.handle({"op": "retain", "program": "a", "for_s": 2, "priority": 3}) == {
        "op": "retain",
        "blocks": 5,
    }
    desk.handle({"op": "retain", "program": 7, "until_s": None})
    desk.handle({"op": "retain", "program": "later", "until_s": 500})
    desk.handle({"op": "drop", "program": "7"})
    assert desk.keeper.did == [
        ("retain", 0, 102.0, 3), ("retain", 1, INF, 0), ("retain", 2, 500, 0), ("drop", 1),
    ]  # fmt: skip
    assert desk.handle({"op": "ping"}) == {"op": "ping", "now": 100.0}
    assert desk.handle({"op": "stats"})["programs"] == 3


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({}, "op must be one of retain, .*got None"),
        ({"op": "retian"}, "got 'retian'"),
        ({"op": "retain", "program": "a"}, "either until_s or for_s"),
        ({"op": "retain", "program": "a", "until_s": 1, "for_s": 1}, "either until_s or for_s"),
        ({"op": "retain", "program": "a", "for_s": -1}, "for_s must be seconds"),
        ({"op": "retain", "program": "a", "for_s": "2"}, "for_s must be seconds"),
        ({"op": "retain", "program": "a", "for_s": True}, "for_s must be seconds"),
        ({"op": "retain", "program": "a", "for_s": float("nan")}, "for_s must be seconds"),
        ({"op": "retain", "program": "a", "for_s": 1, "priority": 0.5}, "priority must be a whole number"),
        ({"op": "retain", "for_s": 1}, "program must be the program_id"),
        ({"op": "drop", "program": "b"}, "unknown program 'b'"),
        ({"op": "end", "program": ["a"]}, "program must be"),
    ],
)
def test_a_bad_message_says_what_is_wrong(desk, message, error):
    with pytest.raises(ValueError, match=error):
        desk.handle(message)
    assert desk.keeper.did == []


def test_a_program_ends_when_its_last_call_has_left(desk):
    assert desk.handle({"op": "end", "program": "a"}) == {"op": "end", "ended": False}
    assert desk.ended == []
    assert desk.callers.left(0)
    assert desk.callers.number("a") is None
    assert not desk.callers.left(1)
    assert desk.handle({"op": "end", "program": 7}) == {"op": "end", "ended": True}
    assert (desk.ended, len(desk.callers)) == ([1], 0)
    again, _, _ = desk.callers.identify({"program_id": "a"}, 1)
    assert (again.program, again.index) == (2, 0)  # another program of the same name


class Clocked:
    """A desk whose time is set."""

    def __init__(self):
        self.now, self.callers, self.keeper = 0.0, Callers(), Keeper()
        self.desk = Desk(self.callers, self.keeper, lambda: self.now, lambda _: None)

    def retain(self, program, **until):
        return self.desk.handle({"op": "retain", "program": program, **until})


def test_a_program_that_never_comes_is_forgotten_after_its_deadline():
    world = Clocked()
    world.callers.identify({"program_id": "here"}, 10)
    world.retain("here", for_s=1)
    world.retain("late", for_s=1)
    world.retain("comes", for_s=1)
    world.retain("later", for_s=1)
    world.retain("later", for_s=5)  # replaces the first
    world.callers.identify({"program_id": "comes"}, 10)
    world.now = 1.0
    assert world.desk.handle({"op": "stats"})["programs"] == 3
    assert world.keeper.did[-1] == ("end", world.callers.number("here") + 1)
    assert world.callers.number("late") is None
    world.now = 5.0
    world.retain("another", for_s=1)
    assert world.callers.number("later") is None
    assert world.callers.number("comes") is not None


def test_only_so_many_programs_are_known_ahead_of_their_calls():
    world = Clocked()
    for number in range(AHEAD):
        world.retain(number, until_s=10 if number else None)
    with pytest.raises(ValueError, match="1000 without a call are known already"):
        world.retain("one more", for_s=1)
    world.retain(1, for_s=60)  # it is known
    world.callers.identify({"program_id": 2}, 10)  # makes room
    world.retain("one more", for_s=1)
    world.desk.handle({"op": "end", "program": 3})
    world.retain("and another", for_s=1)
    with pytest.raises(ValueError, match="unknown program 'no', and 1000"):
        world.retain("no", for_s=1)
    world.now = 10.0  # all but 0 and 1 are late
    world.retain("yes", for_s=1)
    assert len(world.callers) == 4  # 0, 1, 2 and yes


# The socket


@pytest.fixture
def channel(tmp_path):
    channel = Channel(str(tmp_path / "engine.sock"))
    yield channel
    channel.close()


def test_the_socket_is_never_open_to_others_and_the_process_keeps_its_umask(tmp_path, monkeypatch):
    before = os.umask(0)  # the file would be everybody's
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda _: pytest.fail("other threads make files, too"))
            patched.setattr(os, "chmod", lambda *_: pytest.fail("too late"))
            channel = Channel(str(tmp_path / "other.sock"))
        assert stat.S_IMODE(Path(channel.path).stat().st_mode) == 0o600
        channel.close()
    finally:
        os.umask(before)


def test_the_socket_is_its_users_and_goes_away(channel):
    assert stat.S_IMODE(Path(channel.path).stat().st_mode) == 0o600
    channel.close()
    channel.close()
    assert not Path(channel.path).exists()


def test_a_client_asks_and_is_answered(channel):
    with Client(channel.path) as client:
        client._socket.send(b'{"op": "ping", "n": 1}')
        channel.serve(lambda message: {"got": message["n"]})
        assert json.loads(client._socket.recv(100)) == {"got": 1}


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"[1]", b'{"op":', b'"retain"', b"1" * 4000, b"[" * 60_000]
)
def test_nonsense_is_answered_with_an_error(channel, data):
    with Client(channel.path) as client:
        client._socket.send(data)
        channel.serve(lambda message: {})
        assert "one JSON object" in json.loads(client._socket.recv(65_536))["error"]


def test_at_most_so_many_at_a_boundary_and_nobody_need_listen(channel):
    seen = []
    with Client(channel.path, timeout=0.2) as client:
        client._socket.setblocking(False)
        sent = 0
        try:
            for sent in range(LIMIT + 20):
                client.send("note", n=sent)
        except BlockingIOError:  # the kernel's queue is shorter
            pass
    while True:
        before = len(seen)
        channel.serve(lambda message: seen.append(message["n"]) or {})
        if len(seen) == before:
            break
        assert len(seen) - before <= LIMIT
    assert seen == list(range(len(seen)))
    assert len(seen) >= 5
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    silent.sendto(b'{"op": 1}', channel.path)  # no address to answer to
    silent.close()
    channel.serve(lambda message: {})


def test_an_error_of_the_desk_reaches_a_client_as_an_error(channel, desk):
    with Client(channel.path) as client:
        huge = b'{"op": "retain", "program": "a", "for_s": 1%s}' % (b"0" * 400)
        unknown = b'{"op": "drop", "program": "nobody"}'
        for text, error in ((unknown, "unknown program 'nobody'"), (huge, "too large")):
            client._socket.send(text)
            channel.serve(desk.handle)
            assert error in json.loads(client._socket.recv(1000))["error"]


def test_paths(tmp_path, channel):
    with pytest.raises(ValueError, match="longer than the 107 bytes"):
        Channel(str(tmp_path / ("x" * 120)))
    with pytest.raises(ValueError, match="another engine listens"):
        Channel(channel.path)
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ValueError, match="is no socket"):
        Channel(str(file))
    with pytest.raises(ValueError, match="cannot make a socket"):
        Channel(str(tmp_path / "none" / "engine.sock"))
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    stale.bind(str(tmp_path / "stale"))
    stale.close()
    Channel(str(tmp_path / "stale")).close()
    with pytest.raises(OSError, match="No such file"):
        Client(str(tmp_path / "nobody"))


def test_what_is_sent_is_answered_only_if_it_was_wrong(channel, desk):
    with Client(channel.path, timeout=0.1) as client:
        client.send("ping")
        client.send("pong")
        channel.serve(desk.handle)
        assert "got 'pong'" in json.loads(client._socket.recv(1000))["error"]
        with pytest.raises(TimeoutError):
            client._socket.recv(1000)
