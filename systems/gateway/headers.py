"""Which headers a proxy passes on (RFC 9110, 7.6.1), towards the engine and back."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping

_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "content-length",
})  # fmt: skip
_ASKED = _HOP | {"host", "expect", "accept-encoding", "content-encoding", "x-request-id"}
"""The body was unpacked when it was read, and what comes back must be readable here."""
KEYS = frozenset({"authorization", "x-api-key"})


def allowed(headers: Mapping[str, str], keys: Iterable[str]) -> bool:
    """Whether a request names one of the keys, as Bearer or as x-api-key; all are compared.

    ``headers`` are found by names in lower case.
    """
    kind, _, token = headers.get("authorization", "").partition(" ")
    given = (token.strip() if kind.lower() == "bearer" else "") or headers.get("x-api-key", "")
    sent = given.encode("utf-8", "surrogateescape")
    return sum(hmac.compare_digest(sent, key.encode()) for key in keys) > 0


def forwarded(headers: Iterable[tuple[str, str]], but: Collection[str] = ()) -> list[tuple[str, str]]:
    """A request's headers for the engine; ``but``: names in lower case that stay here."""
    given, found = list(headers), []
    listed = _listed(given)
    for name, value in given:
        low = name.lower()
        if low not in _ASKED and low not in but and low not in listed:
            found.append((name, value if value.isascii() else _as_sent(value)))
    return found


def returned(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """A reply's headers for the client."""
    given = list(headers)
    listed = _listed(given)
    return [pair for pair in given if (low := pair[0].lower()) not in _HOP and low not in listed]


def _listed(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """What ``Connection`` says is for this hop only."""
    values = [value for name, value in headers if name.lower() == "connection"]
    return frozenset(word.strip().lower() for value in values for word in value.split(","))


def _as_sent(value: str) -> str:
    """aiohttp reads bytes as UTF-8, our client writes Latin-1: the same bytes go on."""
    return value.encode("utf-8", "surrogateescape").decode("latin-1")
