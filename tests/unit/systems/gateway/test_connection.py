"""Bytes on a connection: requests in their usual form, in pieces, one after the other, and all others."""

import asyncio
import contextlib
import json
import re
import time

import pytest
from prometheus_client import generate_latest

from systems.gateway import connection, front
from systems.gateway.connection import head_of
from systems.gateway.metrics import Metrics
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


@on_loop
async def test_without_a_key_a_call_is_refused_before_its_body_comes():
    async with world(Engine(), api_keys=("k",)) as w:
        wire = await Wire.to(w)
        wire.writer.write(request(b"x" * 1_000_000)[:5_000])
        status, body, head = await wire.reply()
        assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
        assert "Connection: close" in head
        wire.writer.write(b"x" * 100_000)  # what comes now is not kept
        assert await wire.reader.read() == b""
        assert w.server._listener.buffered == 0
        assert (w.last.outcome, w.last.status, w.last.endpoint) == ("refused", 401, "/v1/completions")
        wire.writer.close()
        wire = await Wire.to(w)
        wire.writer.write(request(more="x-api-key: k\r\n"))
        assert (await wire.reply())[0] == 200
        wire.writer.close()


@pytest.mark.parametrize("begin", [request()[:-1], request()[:20], b"GET /hea", CHUNKED[:-5]])
def test_a_request_that_takes_for_ever_to_come_is_given_up(begin, monkeypatch):
    monkeypatch.setattr(connection, "_SWEEP_S", 0.03)
    monkeypatch.setattr(connection, "RECEIVE_S", 0.1)
    monkeypatch.setattr(front, "RECEIVE_S", 0.1)

    @on_loop
    async def test():
        async with world(Engine()) as w:
            wire, begun = await Wire.to(w), time.monotonic()
            wire.writer.write(begin)
            assert (await wire.reply())[0] == 408
            assert 0.1 <= time.monotonic() - begun < 2.0
            wire.writer.close()
            assert w.server._listener.buffered == 0

    test()


@on_loop
async def test_requests_that_come_have_so_much_room_and_no_more(monkeypatch):
    monkeypatch.setattr(connection, "MOST_BUFFERED", 1000)
    async with world(Engine()) as w:
        first, second = await Wire.to(w), await Wire.to(w)
        data = request(json.dumps({"prompt": "x" * 2000}).encode())
        first.writer.write(data[:900])
        await until(lambda: w.server._listener.buffered == 900)
        second.writer.write(data[:900])
        status, body, _ = await second.reply()
        assert (status, "too many requests" in json.loads(body)["error"]["message"]) == (503, True)
        assert w.server._listener.buffered == 900
        first.writer.write(data[900:])  # whole: it need not wait
        assert (await first.reply())[0] == 200
        assert w.server._listener.buffered == 0
        first.writer.close()
        second.writer.close()


@on_loop
async def test_who_talks_on_and_on_before_the_reply_is_cut_off():
    async def silence(call):
        await call.left.wait()

    async with world(Engine(silence)) as w:
        wire = await Wire.to(w)
        wire.writer.write(request())
        await until(lambda: w.engines[0].calls)
        wire.writer.write(request(b"x" * 60_000))
        with contextlib.suppress(ConnectionError):
            assert await wire.reader.read() == b""
        await until(lambda: w.engines[0].calls[0].left.is_set())
        wire.writer.close()
        assert w.server._listener.buffered == 0


@on_loop
async def test_a_gateway_that_ends_takes_no_calls_on_open_connections():
    go = asyncio.Event()

    async def waits(call):
        if call.body.get("prompt") == "long":
            await go.wait()
        call.reply({"said": call.path})

    async with world(Engine(waits)) as w:
        idle, half, busy, other = [await Wire.to(w) for _ in range(4)]
        idle.writer.write(request())
        assert (await idle.reply())[0] == 200
        other.writer.write(b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await other.reply())[0] == 200
        half.writer.write(request()[:-4])
        busy.writer.write(request(json.dumps({"prompt": "long"}).encode()))
        await until(lambda: len(w.engines[0].calls) == 3 and w.server._listener.buffered)
        stopping = asyncio.create_task(w.server.stop(drain_s=5.0))
        assert await idle.reader.read() == b""
        other.writer.write(b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n")
        status, _, head = await other.reply()
        assert (status, "Connection: close" in head) == (503, True)
        half.writer.write(request()[-4:])
        status, _, head = await half.reply()
        assert (status, "Connection: close" in head) == (503, True)
        go.set()
        status, _, head = await busy.reply()
        assert (status, "Connection: close" in head) == (200, True)
        assert await busy.reader.read() == b""
        await stopping
        assert len(w.engines[0].calls) == 3
        for wire in (idle, half, busy, other):
            wire.writer.close()


@on_loop
async def test_other_paths_are_counted_and_their_replies_have_a_limit(monkeypatch):
    async with world(Engine()) as w:
        metrics = Metrics(w.gateway.workers.views)
        w.gateway.observers.append(metrics)
        assert (await w.get("/v1/models"))[0] == 200
        monkeypatch.setattr(front, "MOST_REPLY", 10)
        status, _, body = await w.get("/v1/models")
        assert (status, "larger than 10 bytes" in body.decode()) == (502, True)
        text = generate_latest(metrics.registry).decode()
        assert 'gateway_passed_total{status="2xx"} 1.0' in text
        assert 'gateway_passed_total{status="5xx"} 1.0' in text
        metrics.close()


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
