"""Bytes on a connection: requests in their usual form, in pieces, one after the other, and all others."""

import asyncio
import json
import re

import pytest

from systems.gateway import connection
from systems.gateway.connection import head_of
from tests.unit.systems.gateway.engines import Engine, on_loop, until, world

BODY = json.dumps({"model": "m", "prompt": "hello", "program_id": "p"}).encode()

CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
)


def request(body=BODY, more="", path="/v1/completions", version="1.1"):
    head = f"POST {path} HTTP/{version}\r\nHost: h\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


class Wire:
    """A raw client."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, w):
        return cls(*await asyncio.open_connection("127.0.0.1", int(w.server.url.rpartition(":")[2])))

    async def reply(self):
        """(status, body) of the next reply, which has a Content-Length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        return int(head.split()[1]), await self.reader.readexactly(int(length[1])), head


@on_loop
async def test_requests_in_pieces_and_one_after_the_other():
    async with world(Engine()) as w:
        wire = await Wire.to(w)
        data = request()
        for at in range(0, len(data), 7):
            wire.writer.write(data[at : at + 7])
            await asyncio.sleep(0)
            await wire.writer.drain()
            if at % 35 == 0:
                await asyncio.sleep(0.001)
        assert (await wire.reply())[0] == 200
        wire.writer.write(data)
        status, _, head = await wire.reply()
        assert status == 200
        assert "Date: " in head
        assert [call.raw.endswith(BODY[1:]) for call in w.engines[0].calls] == [True, True]
        wire.writer.close()


@on_loop
async def test_pipelined_requests_are_answered_in_order():
    async def script(call):
        await asyncio.sleep(0.03 if call.body["prompt"] == "one" else 0)
        call.reply({"said": call.body["prompt"]})

    async with world(Engine(script)) as w:
        wire = await Wire.to(w)
        words = ("one", "two", "three")
        wire.writer.write(b"".join(request(json.dumps({"prompt": word}).encode()) for word in words))
        for word in words:
            assert json.loads((await wire.reply())[1]) == {"said": word}
        wire.writer.write(b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
        w.engines[0].script = lambda call: asyncio.sleep(0, call.reply({"said": "models"}))
        assert json.loads((await wire.reply())[1]) == {"said": "models"}
        wire.writer.write(request())  # the connection is aiohttp's now
        assert (await wire.reply())[0] == 200
        wire.writer.close()


@on_loop
async def test_a_client_that_wants_the_connection_closed_gets_it_closed():
    async with world(Engine()) as w:
        wire = await Wire.to(w)
        wire.writer.write(request(more="Connection: close\r\n"))
        status, _, head = await wire.reply()
        assert (status, "Connection: close" in head) == (200, True)
        assert await wire.reader.read() == b""
        wire.writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(version="1.0"), 200),
        (request(more="Expect: 100-continue\r\n"), 100),
        (request(more="X-Name: caf\u00e9\r\n"), 200),
        (request(more="X-Twice: 1\r\nX-Twice: 2\r\n"), 200),
        (
            CHUNKED,
            200,
        ),
        (request(more="Content-Length: 1\r\n"), 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (request(b"{", path="/v1/completions?x=1"), 400),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 400),
        (request(b"x" * 3000), 413),
    ],
)
def test_unusual_requests_are_answered_too(data, status):
    @on_loop
    async def test():
        async with world(Engine(), max_body=2000) as w:
            wire = await Wire.to(w)
            wire.writer.write(data)
            line = (await wire.reader.readuntil(b"\r\n")).decode()
            assert int(line.split()[1]) == status
            wire.writer.close()
            await until(lambda: not w.gateway.in_flight)

    test()


@on_loop
async def test_a_client_that_leaves_in_the_middle_of_a_request_leaves_nothing():
    async with world(Engine()) as w:
        wire = await Wire.to(w)
        wire.writer.write(request()[:-5])
        await asyncio.sleep(0.02)
        wire.writer.close()
        await until(lambda: not w.server._listener.open)
        assert w.engines[0].calls == []


@on_loop
async def test_idle_connections_are_closed_in_the_end(monkeypatch):
    monkeypatch.setattr(connection, "_SWEEP_S", 0.03)
    monkeypatch.setattr(connection, "IDLE_S", 0.05)
    async with world(Engine(lambda call: asyncio.sleep(0.2, call.reply()))) as w:
        wire = await Wire.to(w)
        wire.writer.write(request())
        assert (await wire.reply())[0] == 200
        assert await wire.reader.read() == b""
        wire.writer.close()


def test_a_head_is_read_as_it_stands():
    data = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: h\r\nX-A:  b \r\nConnection: Close\r\n"
    data += b"Content-Length: 7"
    head = head_of(data)
    assert (head.endpoint.path, head.path, head.length) == ("/v1/messages", "/v1/messages?beta=true", 7)
    assert head.headers["x-a"] == "b"
    assert not head.keeps


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 7",
        b"POST /v1/models HTTP/1.1\r\nHost: h\r\nContent-Length: 7",
        b"POST /v1/messages HTTP/1.1\r\nContent-Length: 7",
        b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: -7",
        b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length : 7",
        b"POST /v1/messages HTTP/1.1\r\nHost: h\r\n folded\r\nContent-Length: 7",
        b"POST /v1/messages HTTP/1.1\r\nHost: h\nX: y\r\nContent-Length: 7",
        b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\nTransfer-Encoding: chunked",
        b"POST /v1/messages\r\nHost: h\r\nContent-Length: 7",
    ],
)
def test_no_other_head_is_taken(data):
    assert head_of(data) is None
