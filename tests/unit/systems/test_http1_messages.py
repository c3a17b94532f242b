"""Replies cut anywhere, and what is no reply."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.http1_messages import MAX_HEAD, BadReply, Reply, request_bytes


def fed(pieces, method="POST", *, eof=False):
    """The reply after these bytes, and its body."""
    reply = Reply(method)
    body = b"".join([reply.feed(piece) for piece in pieces])
    if eof:
        reply.eof()
    return reply, body


def facts(reply, body):
    return reply.status, reply.headers, reply.ended, reply.reusable, reply.received, body


def cut(data, places):
    """``data`` in pieces that begin at these places."""
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(ends)]


def chunked(pieces, trailer=b""):
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


texts = st.binary(min_size=1, max_size=40)
places = st.lists(st.integers(0, 600), max_size=30)
interim = st.sampled_from(
    [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 2]
)
trailers = st.sampled_from([b"", b"X-Sum: 9\r\n", b"A: 1\r\nB: 2\r\n"])


@given(
    st.lists(texts, max_size=12), interim, trailers, st.sampled_from([b"", b"Connection: close\r\n"]), places
)
def test_a_chunked_reply_is_the_same_wherever_it_is_cut(pieces, before, trailer, close, cuts):
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + close + b"\r\n"
    whole = before + head + chunked(pieces, trailer)
    expected = fed([whole])
    assert facts(*fed(cut(whole, cuts))) == facts(*expected)
    assert facts(*fed([whole[i : i + 1] for i in range(len(whole))])) == facts(*expected)
    assert expected[1] == b"".join(pieces)
    assert expected[0].ended
    assert expected[0].reusable == (not close)


@given(texts, interim, places)
def test_a_sized_reply_is_the_same_wherever_it_is_cut(body, before, cuts):
    whole = before + b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    reply, found = fed(cut(whole, cuts))
    assert facts(reply, found) == facts(*fed([whole]))
    assert (reply.status, found, reply.ended, reply.reusable) == (404, body, True, True)


@given(st.binary(max_size=80), places)
def test_a_reply_without_a_length_ends_with_the_connection(body, cuts):
    whole = b"HTTP/1.1 200 OK\r\n\r\n" + body
    reply, found = fed(cut(whole, cuts))
    assert not reply.ended
    reply.eof()
    assert (reply.ended, reply.reusable, found) == (True, False, body)


@given(st.lists(texts, max_size=6), st.integers(0, 400))
def test_a_reply_that_breaks_off_is_never_whole(pieces, at):
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(pieces)
    part = whole[: min(at, len(whole) - 1)]
    with pytest.raises(BadReply, match=r"the connection closed (before|within|after)"):
        fed([part] if part else [], eof=True)


@given(st.binary(max_size=200), places)
def test_rubbish_is_refused_or_waits_but_never_breaks(data, cuts):
    with suppress(BadReply):
        reply, _ = fed(cut(data, cuts))
        assert not reply.status


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        ("POST", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("GET", b"HTTP/1.1 200\r\nContent-Length: 0, 0\r\n\r\n"),
        ("GET", b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_replies_without_a_body_end_with_their_head(method, head):
    reply, body = fed([head], method)
    assert (reply.ended, reply.reusable, body) == (True, True, b"")


def test_bytes_behind_a_reply_are_nobodys_and_spoil_the_connection():
    reply, body = fed([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 "])
    assert (body, reply.ended, reply.reusable) == (b"ok", True, False)
    reply, body = fed([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"more"])
    assert (body, reply.reusable) == (b"ok", False)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SSH-2.0-OpenSSH", "no HTTP/1.1 reply, after 15 bytes"),
        (b"HTTP/1.1 abc\r\n\r\n", "no HTTP/1.1 status line"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "another protocol"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "line 1 after its status line is no header"),
        (b"HTTP/1.1 200 OK\r\nA: 1\r\n folded\r\n\r\n", "line 2 after its status line is no header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "several content-lengths"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "content-length is no number"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "coding is not chunked alone"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "3 bytes where a chunk's size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "where a chunk's size should be"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd", "longer than it says"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000, "longer than 4096"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * MAX_HEAD, "head is longer than 65536"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * MAX_HEAD + b"\r\n\r\n", "head is longer than 65536"),
    ],
)
def test_what_is_no_reply_says_why(data, message):
    with pytest.raises(BadReply, match=message):
        fed([data])


@pytest.mark.parametrize(
    "data",
    [
        b"SECRET",
        b"HTTP/1.1 SECRET\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nSECRET\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nSECRET\r\n",
    ],
)
def test_what_is_wrong_with_a_reply_is_said_without_its_bytes(data):
    with pytest.raises(BadReply) as bad:
        fed([data])
    assert "secret" not in str(bad.value).lower()


def test_headers_are_found_whatever_their_case():
    reply, _ = fed([b"HTTP/1.1 200 OK\r\nX-A:  one \r\nx-a: two\r\nContent-Length: 0\r\n\r\n"])
    assert reply.headers[:2] == [("X-A", "one"), ("x-a", "two")]
    assert reply.header("x-A") == "one"
    assert reply.header("none") is None


def test_a_request_as_bytes():
    data = request_bytes("h:1", "POST", "/a?b", {"X-A": "1"}, b"{}")
    assert data == b"POST /a?b HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\nContent-Length: 2\r\n\r\n{}"
    assert request_bytes("h:1", "GET", "/", (), None) == b"GET / HTTP/1.1\r\nHost: h:1\r\n\r\n"
    assert b"Content-Length: 0\r\n" in request_bytes("h:1", "POST", "/", (), None)
    assert request_bytes("h:1", "GET", "/", {"host": "other"}, None).count(b"h:1") == 0


@pytest.mark.parametrize(
    ("method", "path", "headers", "message"),
    [
        ("GET", "/a b", {}, "no method and path"),
        ("GET", "/a\r\nX: y", {}, "no method and path"),
        ("G T", "/", {}, "no method and path"),
        ("GET", "/", {"A": "1\r\nB: 2"}, "line break in a header"),
        ("GET", "/", {"content-length": "3"}, "content-length is set by the client"),
        ("GET", "/", {"Connection": "close"}, "connection is set by the client"),
    ],
)
def test_what_must_not_be_in_a_request(method, path, headers, message):
    with pytest.raises(ValueError, match=message):
        request_bytes("h", method, path, headers, None)
