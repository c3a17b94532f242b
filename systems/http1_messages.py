"""HTTP/1.1 messages (RFC 9112): a request as bytes, and a reply taken apart as it comes. No I/O.

What is wrong with a reply is said without its bytes: they may be somebody's prompt, and errors are logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

MAX_HEAD = 1 << 16
"""Bytes of a status line and its headers; a longer head is refused."""
_MAX_LINE = 1 << 12
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_TOKEN = re.compile(r"[A-Za-z]+")
_TARGET = re.compile(r"[^\s\x00-\x1f\x7f]+")
_OURS = frozenset({"content-length", "transfer-encoding", "connection"})

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class BadReply(ValueError):
    """What came is no HTTP/1.1 reply, or the connection closed before it was whole."""


class HttpFailed(ConnectionError):
    """No whole reply; the text names the server and says why, and is never empty."""


class CannotConnect(HttpFailed):
    """There is no connection: the server has seen nothing of the request."""


class BrokenOff(HttpFailed):
    """The connection closed before the reply was over, or the reply is no HTTP/1.1.

    ``began``: whether a byte of the reply had come.
    """

    def __init__(self, text: str, began: bool) -> None:
        super().__init__(text)
        self.began = began


class Reply:
    """``feed`` it what comes; ``status`` is 0 until the head is there, ``ended`` tells that the body is.

    ``headers``: (name, value) in the order in which they came. ``reusable``: another reply may follow on
    the same connection. ``received``: bytes of the body so far. Trailers are read and dropped.
    """

    __slots__ = (
        "_bodiless",
        "_kept",
        "_left",
        "_state",
        "ended",
        "headers",
        "received",
        "reusable",
        "status",
    )

    def __init__(self, method: str = "GET") -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.ended = False
        self.reusable = False
        self.received = 0
        self._bodiless = method == "HEAD"
        self._kept = b""  # what waits for its other half
        self._left = 0  # bytes still to come of the body, or of this chunk
        self._state: Callable[[Reply, bytes], bytes] = Reply._head

    @property
    def began(self) -> bool:
        """Whether a byte of it has come."""
        return bool(self.status or self._kept)

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its name's case."""
        low = name.lower()
        return next((value for key, value in self.headers if key.lower() == low), None)

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body that ``data`` brings. Raises BadReply."""
        if self._kept:
            data, self._kept = self._kept + data, b""
        piece = self._state(self, data)
        self.received += len(piece)
        return piece

    def eof(self) -> None:
        """The connection is closed. Raises BadReply if that was too early."""
        if self._state is Reply._until_close:
            self.ended = True
        if not self.ended:
            where = f"after {self.received} bytes of the body" if self.status else "before a reply came"
            raise BadReply(f"the connection closed {'within the head' if self._cut_head else where}")

    @property
    def _cut_head(self) -> bool:
        return not self.status and bool(self._kept)

    # -- states: each takes all bytes there are and returns those of the body ----------

    def _head(self, data: bytes) -> bytes:
        while not self.status:
            if not data.startswith(b"HTTP/1."[: len(data)]):
                raise BadReply(f"no HTTP/1.1 reply, after {len(data)} bytes")
            end = data.find(b"\r\n\r\n")
            if max(end, len(data) - 3 if end < 0 else 0) > MAX_HEAD:
                raise BadReply(f"its head is longer than {MAX_HEAD} bytes")
            if end < 0:
                self._kept = data
                return b""
            self._begin(data[:end].split(b"\r\n"))
            data = data[end + 4 :]
            if not data:
                return b""
        return self._state(self, data)

    def _sized(self, data: bytes) -> bytes:
        if len(data) < self._left:
            self._left -= len(data)
            return data
        piece = data[: self._left]
        self._end(data[self._left :])
        return piece

    def _until_close(self, data: bytes) -> bytes:
        return data

    def _over(self, data: bytes) -> bytes:
        if data:
            self.reusable = False  # nobody asked for this
        return b""

    def _chunk(self, data: bytes) -> bytes:
        """At a chunk's size or within its bytes; ``_left`` counts those that are still to come."""
        if not self._left and self._state is Reply._chunk:
            end = data.find(b"\r\n", 0, 20)
            if end > 0 and len(data) - end - 4 == (_size_of(data[:end]) or -1) and data.endswith(b"\r\n"):
                return data[end + 2 : -2]  # one whole chunk, as most are that a server streams
        out, at, size = [], 0, len(data)
        while at < size:
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                out.append(piece)
                if self._left:
                    break
                self._state = Reply._chunk_end
            if self._state is Reply._chunk_end:
                if size - at < 2:
                    self._kept = data[at:]
                    break
                at = self._line_end(data, at)
            end = data.find(b"\r\n", at)
            if end < 0:
                self._keep_line(data[at:])
                break
            self._left = _size_of(data[at:end])
            at = end + 2
            if not self._left:
                self._state = Reply._trailers
                self._trailers(data[at:])
                break
        return out[0] if len(out) == 1 else b"".join(out)

    def _chunk_end(self, data: bytes) -> bytes:
        return self._chunk(data)

    def _line_end(self, data: bytes, at: int) -> int:
        if data[at : at + 2] != b"\r\n":
            raise BadReply(f"a chunk of the body is longer than it says, after {self.received} bytes")
        self._state = Reply._chunk
        return at + 2

    def _trailers(self, data: bytes) -> bytes:
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            if end == at:
                self._end(data[end + 2 :])
                return b""
            at = end + 2
        self._keep_line(data[at:])
        return b""

    def _keep_line(self, rest: bytes) -> None:
        if len(rest) > _MAX_LINE:
            raise BadReply(f"a line between the body's chunks is longer than {_MAX_LINE} bytes")
        self._kept = rest

    def _end(self, rest: bytes) -> None:
        self.ended, self._state = True, Reply._over
        self._over(rest)

    # -- the head ----------------------------------------------------------------------

    def _begin(self, lines: list[bytes]) -> None:
        match = _STATUS.fullmatch(lines[0])
        if match is None:
            raise BadReply(f"no HTTP/1.1 status line in the first {len(lines[0])} bytes")
        status = int(match[2])
        if status == 101:
            raise BadReply("it switches to another protocol (101), which nobody asked for")
        headers = [_field(number, line) for number, line in enumerate(lines[1:], 1)]
        if status < 200:
            return  # interim: the real one follows
        self.status, self.headers = status, headers
        options = self._listed("connection")
        self.reusable = "close" not in options and (match[1] == b"1" or "keep-alive" in options)
        self._frame()

    def _frame(self) -> None:
        """How the body ends (RFC 9112, 6.3)."""
        codings, lengths = self._listed("transfer-encoding"), set(self._listed("content-length"))
        if self._bodiless or self.status in (204, 304):
            self._end(b"")
        elif codings:
            if codings != ["chunked"]:
                raise BadReply("its transfer coding is not chunked alone, which is all that is known here")
            self.reusable = self.reusable and not lengths
            self._state = Reply._chunk
        elif lengths:
            self._left = _length_of(lengths)
            self._state = Reply._sized
            if not self._left:
                self._end(b"")
        else:
            self.reusable, self._state = False, Reply._until_close

    def _listed(self, name: str) -> list[str]:
        """All values of a header that is a list, in lower case."""
        found = [value for key, value in self.headers if key.lower() == name]
        return [part.strip().lower() for value in found for part in value.split(",") if part.strip()]


def _field(number: int, line: bytes) -> tuple[str, str]:
    match = _FIELD.fullmatch(line)
    if match is None:
        raise BadReply(f"line {number} after its status line is no header")
    return match[1].decode("ascii"), match[2].rstrip(b" \t").decode("latin-1")


def _length_of(lengths: set[str]) -> int:
    (one,) = lengths if len(lengths) == 1 else ("",)
    if not (one.isascii() and one.isdigit() and len(one) < 16):
        raise BadReply("its content-length is no number" if one else "it has several content-lengths")
    return int(one)


@lru_cache(maxsize=1024)
def _size_of(line: bytes) -> int:
    match = _SIZE.fullmatch(line)
    if match is None:
        raise BadReply(f"{len(line)} bytes where a chunk's size should be are none")
    return int(match[1], 16)


def request_bytes(
    where: str,
    method: str,
    path: str,
    headers: Headers,
    body: bytes | None,
) -> bytes:
    """Request line, headers and body. Raises ValueError."""
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(path):
        raise ValueError(f"no method and path of a request: {method!r} {path!r}")
    given = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in given}
    if wrong := names & _OURS:
        raise ValueError(f"header {min(wrong)} is set by the client itself")
    lines = [f"{name}: {value}" for name, value in given]
    if "host" not in names:
        lines.insert(0, f"Host: {where}")
    if body is not None or method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(body or b'')}")
    if any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise ValueError("a line break in a header")
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""])
    return head.encode("latin-1") + (body or b"")


def server_of(url: str) -> tuple[str, int, bool]:
    """Host, port and whether it is https. Raises ValueError if that is no http(s)://HOST[:PORT]."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no http://HOST:PORT: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http://HOST:PORT")
    secure = parts.scheme == "https"
    return parts.hostname, port or (443 if secure else 80), secure
