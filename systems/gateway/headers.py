"""Which headers a proxy passes on (RFC 9110, 7.6.1), towards the engine and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable

_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "content-length",
})  # fmt: skip
_ASKED = _HOP | {"host", "expect", "accept-encoding", "content-encoding", "x-request-id"}
"""The body was unpacked when it was read, and what comes back must be readable here."""
KEYS = frozenset({"authorization", "x-api-key"})


def forwarded(headers: Iterable[tuple[str, str]], but: Collection[str] = ()) -> list[tuple[str, str]]:
    """A request's headers for the engine; ``but``: names in lower case that stay here."""
    found = []
    for name, value in headers:
        low = name.lower()
        if low not in _ASKED and low not in but:
            found.append((name, value if value.isascii() else _as_sent(value)))
    return found


def returned(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """A reply's headers for the client."""
    return [(name, value) for name, value in headers if name.lower() not in _HOP]


def _as_sent(value: str) -> str:
    """aiohttp reads bytes as UTF-8, our client writes Latin-1: the same bytes go on."""
    return value.encode("utf-8", "surrogateescape").decode("latin-1")
