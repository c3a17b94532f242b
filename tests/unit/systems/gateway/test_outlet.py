"""How many writes a reply takes: each is a system call, and wakes the client."""

import asyncio

from systems.gateway.errors import CHAT
from systems.gateway.intake import Intake
from systems.gateway.observe import Passage
from systems.gateway.outlet import RawOutlet

EVENT = b"data: {}\n\n"
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"


class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.writes = []
        self.closing = False

    def write(self, data):
        assert not self.closing
        self.writes.append(bytes(data))

    def is_closing(self):
        return self.closing

    def get_write_buffer_size(self):
        return 0


class Reply:
    """An exchange; ``ended``: its last piece has come."""

    def __init__(self, ended=False):
        self.ended = ended


def passing():
    passage = Passage(0, 0, "", "", 0, "/v1/completions", True, 0.0)
    return Intake(passage, 0.0, False, lambda: None)


def begun():
    wire = Wire()
    outlet = RawOutlet(wire, speech=CHAT, keeps=True)
    asyncio.run(outlet.begin())
    return wire, outlet


def chunk(piece):
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def test_a_reply_that_came_whole_goes_in_one_write():
    wire, outlet = begun()
    intake = passing()
    intake.receive(1.0, EVENT)
    intake.receive(1.0, DONE)
    intake.open(outlet, Reply(ended=True))
    assert wire.writes == []
    asyncio.run(outlet.end())
    (data,) = wire.writes
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == chunk(EVENT) + chunk(DONE) + LAST


def test_the_head_goes_with_the_first_piece_and_the_end_with_the_last():
    wire, outlet = begun()
    intake, reply = passing(), Reply()
    intake.receive(1.0, EVENT)
    intake.open(outlet, reply)
    assert wire.writes[0].endswith(b"\r\n\r\n" + chunk(EVENT))
    intake.receive(2.0, EVENT)
    assert wire.writes[1:] == [chunk(EVENT)]
    reply.ended = True
    intake.receive(3.0, DONE)
    assert len(wire.writes) == 2
    asyncio.run(outlet.end())
    assert wire.writes[2:] == [chunk(DONE) + LAST]


def test_a_head_without_a_piece_does_not_wait_for_one():
    wire, outlet = begun()
    passing().open(outlet, Reply())
    (head,) = wire.writes
    assert head.endswith(b"\r\n\r\n")


def test_an_error_after_the_last_piece_takes_it_along():
    wire, outlet = begun()
    passing().open(outlet, Reply())
    outlet.write(EVENT, 1.0, last=True)
    outlet.fail(b'{"error": {}}', 2.0)
    assert wire.writes[1].startswith(chunk(EVENT))
    assert b'"error"' in wire.writes[1]


def test_nothing_is_written_to_a_client_that_has_left():
    wire, outlet = begun()
    wire.closing = True
    outlet.flush()
    outlet.write(EVENT, 1.0)
    asyncio.run(outlet.end())
    assert wire.writes == []
