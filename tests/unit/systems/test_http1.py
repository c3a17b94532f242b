"""The raw HTTP client against servers on the loopback that do what they are told."""

import asyncio
import contextlib
import socket
import time
from contextlib import asynccontextmanager

import pytest
import uvloop

from systems.http1 import HIGH_WATER, BrokenOff, CannotConnect, Connections

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """``play(request, reader, writer, n)`` answers the n-th request of a connection."""

    def __init__(self, play):
        self.play = play
        self.requests = []
        self.connections = 0
        self.ended = 0

    async def serve(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(ConnectionError, RuntimeError, asyncio.IncompleteReadError):
            n = 0
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
                body = await reader.readexactly(int(size[0].split(b":")[1])) if size else b""
                self.requests.append(head + body)
                if await self.play(head + body, reader, writer, n) == "close":
                    break
                n += 1
        self.ended += 1
        writer.close()

    @asynccontextmanager
    async def running(self, host="127.0.0.1", **options):
        server = await asyncio.start_server(self.serve, host, 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with Connections(host, port, **options) as client:
                yield client
        finally:
            server.close()


async def say_ok(request, reader, writer, n):
    writer.write(OK)


def against(play, test, *, loop=asyncio.run, **options):
    """Run ``test(client, server)`` against a server that plays so; returns what the test returns."""
    server = Server(play)

    async def go():
        async with asyncio.timeout(10), server.running(**options) as client:
            found = await test(client, server)
        assert client.open == 0
        return found

    return loop(go())


async def get(client, path="/", **options):
    async with await client.request("GET", path, **options) as reply:
        return reply.status, await reply.read()


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_is_used_again(loop):
    async def test(client, server):
        assert [await get(client) for _ in range(3)] == [(200, b"ok")] * 3
        assert (client.open, client.idle, server.connections) == (1, 1, 1)

    against(say_ok, test, loop=loop)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_pieces_are_stamped_when_they_come_not_when_they_are_read(loop):
    sent = []

    async def play(request, reader, writer, n):
        writer.write(CHUNKED)
        for piece in (b"4\r\nabcd\r\n", b"2\r\nef\r\n", b"0\r\n\r\n"):
            sent.append(time.monotonic())
            writer.write(piece)
            await asyncio.sleep(0.03)

    async def test(client, server):
        async with await client.request("POST", "/", body=b"x") as reply:
            assert reply.sent <= reply.head_at <= time.monotonic()
            await asyncio.sleep(0.12)
            return [piece async for piece in reply]

    (first, one), (second, two) = against(play, test, loop=loop)
    assert (one, two) == (b"abcd", b"ef")
    for stamp, at in ((first, sent[0]), (second, sent[1])):
        assert 0 <= stamp - at < 0.025


def test_a_callback_is_told_of_pieces_and_nobody_is_woken_for_them():
    async def play(request, reader, writer, n):
        writer.write(CHUNKED)
        for _ in range(20):
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(0.001)
        writer.write(b"0\r\n\r\n")

    async def test(client, server):
        got = []
        reply = await client.request("GET", "/", receive=lambda *piece: got.append(piece))
        await reply.wait()
        assert reply.over
        assert client.idle == 1
        return got

    got = against(play, test)
    assert b"".join(piece for _, piece in got) == b"x" * 20
    assert [stamp for stamp, _ in got] == sorted(stamp for stamp, _ in got)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(loop):
    """After a long tool the server has closed it: the call goes out again and nobody hears of it."""

    async def play(request, reader, writer, n):
        if n:
            return "close"
        writer.write(OK)
        return None

    async def test(client, server):
        assert await get(client, "/1") == (200, b"ok")
        assert await get(client, "/2") == (200, b"ok")
        assert [request.split()[1] for request in server.requests] == [b"/1", b"/2", b"/2"]
        assert server.connections == 2

    against(play, test, loop=loop, stale_s=5.0)  # a busy machine is no busy server


def test_a_kept_connection_that_is_lost_after_a_while_is_not_replaced():
    """The server may have worked on it: only its caller knows whether it may go out again."""

    async def play(request, reader, writer, n):
        if n:
            await asyncio.sleep(0.06)
            return "close"
        writer.write(OK)
        return None

    async def test(client, server):
        await get(client)
        with pytest.raises(BrokenOff, match="before a reply came") as broken:
            await get(client)
        assert not broken.value.began
        assert len(server.requests) == 2

    against(play, test, stale_s=0.03)


def test_a_request_that_a_kept_connection_took_with_it_was_seen_perhaps():
    """Its server is gone: that is no CannotConnect, after which it could go anywhere."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")
        listening[0].close()
        writer.transport.abort()

    listening = []

    async def go():
        listening.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        port = listening[0].sockets[0].getsockname()[1]
        async with Connections("127.0.0.1", port, stale_s=5.0) as client:
            assert await get(client) == (200, b"ok")
            with pytest.raises(BrokenOff, match=r"cannot connect: .*and a kept one closed") as broken:
                await get(client)
            assert not broken.value.began

    asyncio.run(go())


def test_a_request_that_went_out_twice_was_sent_when_it_went_out_first():
    async def play(request, reader, writer, n):
        await asyncio.sleep(0.02)
        if n:
            return "close"
        writer.write(OK)
        return None

    async def test(client, server):
        await get(client)
        async with await client.request("GET", "/") as reply:
            assert reply.head_at - reply.sent >= 0.035

    against(play, test, stale_s=5.0)


def test_a_fresh_connection_that_closes_is_not_tried_again():
    async def play(request, reader, writer, n):
        return "close"

    async def test(client, server):
        with pytest.raises(
            BrokenOff, match=r"127\.0\.0\.1:\d+: the connection closed before a reply"
        ) as broken:
            await get(client)
        assert not broken.value.began
        assert server.connections == 1

    against(play, test)


def test_a_reply_that_began_is_never_asked_for_again():
    async def play(request, reader, writer, n):
        writer.write(OK if not n else b"HTTP/1.1 2")
        return "close" if n else None

    async def test(client, server):
        await get(client)
        with pytest.raises(BrokenOff, match="within the head") as broken:
            await get(client)
        assert broken.value.began
        assert len(server.requests) == 2

    against(play, test)


def test_a_body_that_breaks_off_keeps_what_came_and_says_how_much():
    async def play(request, reader, writer, n):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabcd")
        await writer.drain()
        return "close"

    async def test(client, server):
        got = []
        async with await client.request("GET", "/") as reply:
            got.append((await anext(reply))[1])
            with pytest.raises(BrokenOff, match="closed after 4 bytes of the body"):
                await reply.read()
        return got

    assert against(play, test) == [b"abcd"]


def test_no_http_at_all():
    async def play(request, reader, writer, n):
        writer.write(b"220 smtp ready\r\n")

    async def test(client, server):
        with pytest.raises(BrokenOff, match=r"no HTTP/1\.1 reply, after 16 bytes"):
            await get(client)

    against(play, test)


def test_nobody_listens():
    async def go():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        async with Connections("127.0.0.1", port, limit=1) as client:
            for _ in range(2):  # the place in the pool was given back
                with pytest.raises(CannotConnect, match=rf"127\.0\.0\.1:{port}: cannot connect: ."):
                    await client.request("GET", "/")

    asyncio.run(go())


def test_a_name_that_is_none():
    async def go():
        async with Connections("nowhere.invalid", 80) as client:
            await client.request("GET", "/")

    with pytest.raises(CannotConnect, match=r"nowhere\.invalid:80: cannot connect: ."):
        asyncio.run(go())


def test_a_closed_client_says_so():
    async def test(client, server):
        await get(client)
        await client.close()
        with pytest.raises(CannotConnect, match="this client is closed"):
            await get(client)

    against(say_ok, test)


def test_a_limit_is_kept_in_order_and_cancelled_waiters_leave():
    busy = []

    async def play(request, reader, writer, n):
        busy.append(len(busy))
        await asyncio.sleep(0.02)
        writer.write(OK)

    async def test(client, server):
        calls = [asyncio.create_task(get(client, f"/{i}")) for i in range(6)]
        await asyncio.sleep(0.01)
        calls[3].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert [request.split()[1] for request in server.requests] == [b"/0", b"/1", b"/2", b"/4", b"/5"]
        assert server.connections == 2

    against(play, test, limit=2)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_cancelled_anywhere_nothing_is_left(loop):
    async def play(request, reader, writer, n):
        await asyncio.sleep(0.002)
        writer.write(CHUNKED + b"2\r\nab\r\n")
        await asyncio.sleep(0.002)
        writer.write(b"0\r\n\r\n")

    async def test(client, server):
        for i in range(25):
            call = asyncio.create_task(get(client))
            await asyncio.sleep(0.0003 * i)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert await get(client) == (200, b"ab")  # both places of the pool are free
        assert await get(client) == (200, b"ab")
        await asyncio.sleep(0.02)
        assert client.open == client.idle == 1
        assert server.connections - server.ended == 1

    against(play, test, loop=loop, limit=2)


def test_giving_up_closes_the_connection_so_that_the_server_notices():
    noticed = asyncio.Event()

    async def play(request, reader, writer, n):
        writer.write(CHUNKED + b"1\r\nx\r\n")
        await reader.read()
        noticed.set()
        return "close"

    async def test(client, server):
        async with await client.request("GET", "/") as reply:
            await anext(reply)
        await noticed.wait()
        assert client.open == 0
        with pytest.raises(BrokenOff, match="given up by this side"):
            await reply.read()

    against(play, test)


def test_a_slow_reader_holds_the_server_back():
    written = []

    async def play(request, reader, writer, n):
        size = 64 * HIGH_WATER
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(64):
            writer.write(bytes(HIGH_WATER))
            await writer.drain()
            written.append(HIGH_WATER)

    async def test(client, server):
        async with await client.request("GET", "/") as reply:
            await asyncio.sleep(0.1)
            held = sum(written)
            size = 0
            async for _, piece in reply:
                size += len(piece)
        return held, size

    held, size = against(play, test)
    assert size == 64 * HIGH_WATER
    assert held < size, "the server could write all of it to a client that did not read"


def test_idle_connections_are_closed_in_time_and_old_ones_not_used():
    async def test(client, server):
        await asyncio.gather(*[get(client) for _ in range(4)])
        assert client.idle == 4
        await asyncio.sleep(0.03)
        await get(client)
        assert client.idle >= 1
        await asyncio.sleep(0.12)
        assert client.open == 0
        await get(client)
        assert server.connections == 5

    against(say_ok, test, keep_alive_s=0.06)


def test_what_an_idle_server_says_is_not_taken_for_a_reply():
    async def play(request, reader, writer, n):
        writer.write(OK)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    async def test(client, server):
        await get(client)
        await asyncio.sleep(0.04)
        assert client.open == 0
        assert await get(client) == (200, b"ok")

    against(play, test)


def test_head_and_replies_that_end_with_the_connection():
    async def play(request, reader, writer, n):
        if request.startswith(b"HEAD"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
            return None
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        await writer.drain()
        return "close"

    async def test(client, server):
        async with await client.request("HEAD", "/") as reply:
            assert await reply.read() == b""
            assert reply.header("content-length") == "99"
        assert client.idle == 1
        assert await get(client) == (200, b"all of it")
        assert client.open == 0

    against(play, test)


def test_an_answer_before_the_request_is_through_is_taken_and_ends_the_connection():
    """413: the server reads no further."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
        await asyncio.sleep(0.2)
        writer.close()

    async def go():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with Connections("127.0.0.1", server.sockets[0].getsockname()[1]) as client:
            async with await client.request("POST", "/", body=bytes(32 << 20)) as reply:
                assert (reply.status, await reply.read()) == (413, b"no!")
            assert client.idle == 0
        server.close()

    asyncio.run(go())


def _bindable(host):
    with socket.socket(socket.AF_INET6) as probe, contextlib.suppress(OSError):
        probe.bind((host, 0))
        return True
    return False


def test_nagle_is_off_and_ipv6_works():
    async def test(client, server):
        await get(client)
        (connection,) = client._open
        plain = connection.transport.get_extra_info("socket")
        assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert f"Host: {client.where}".encode() in server.requests[0]
        return client.where

    host = "::1" if socket.has_ipv6 and _bindable("::1") else "127.0.0.1"
    where = against(say_ok, test, host=host)
    assert where.startswith(("[::1]:", "127.0.0.1:"))


@pytest.mark.parametrize(
    ("url", "where"), [("http://h:1/v1", "h:1"), ("http://h", "h:80"), ("https://[::1]", "[::1]:443")]
)
def test_a_url_names_the_server(url, where):
    assert Connections.at(url).where == where


@pytest.mark.parametrize("url", ["h:1", "ftp://h", "http://", "http://h:port"])
def test_what_is_no_url(url):
    with pytest.raises(ValueError, match="is no http://HOST:PORT"):
        Connections.at(url)
