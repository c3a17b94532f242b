"""Sends a case as it is, and keeps what comes back: status, headers, body."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.conformance_parts.cases import Case

LIMIT_S = 60.0
_PIECE = 512


@dataclass(frozen=True)
class Answer:
    """``headers``: (name in lower case, value), in their order. ``body`` of a reply that was cut: what came.
    ``lost``: how the reply broke off, "" if it is whole."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    lost: str = ""

    @property
    def streamed(self) -> bool:
        """Whether it is events."""
        return any(name == "content-type" and "event-stream" in value for name, value in self.headers)


def send(url: str, case: Case, more: dict[str, str] | None = None) -> Answer:
    """One request on a connection of its own. ``more``: headers besides the case's.

    Raises OSError if there is no answer.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=LIMIT_S)
    try:
        headers = {"Content-Type": "application/json"} if case.raw is not None else {}
        headers |= {**dict(case.headers), **(more or {})}
        body = _chunks(case.raw or b"") if case.chunked else case.raw
        if case.chunked:
            headers["Transfer-Encoding"] = "chunked"
        connection.request(case.method, case.path, body, headers, encode_chunked=case.chunked)
        response = connection.getresponse()
        found = tuple((name.lower(), value) for name, value in response.getheaders())
        if case.cut_after:
            return Answer(response.status, found, response.read(case.cut_after))
        try:
            return Answer(response.status, found, response.read())
        except http.client.HTTPException as error:
            return Answer(response.status, found, b"", type(error).__name__)
    finally:
        connection.close()


def _chunks(raw: bytes) -> Iterator[bytes]:
    for start in range(0, len(raw), _PIECE):
        yield raw[start : start + _PIECE]
