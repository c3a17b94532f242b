"""Which headers go through a relay (RFC 9110, 7.6.1), and which say who calls."""

from __future__ import annotations

from collections.abc import Iterable

from workloads.agents.relay.whose import IDENTITY

_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "content-length",
})  # fmt: skip
_ASKED = frozenset({
    *_HOP, *IDENTITY, "x-smg-routing-key", "host", "expect", "accept-encoding", "content-encoding",
    "x-request-id",
})  # fmt: skip
"""The body was unpacked when it was read, and the reply must be readable here."""
_PROGRAM = ("X-Program-ID", "X-Session-ID", "X-SMG-Routing-Key")
"""Our gateway's, vllm-router's, that of smg and sglang-router."""
_KEYS = frozenset({"authorization", "x-api-key"})


def onward(headers: Iterable[tuple[str, str]], key: str) -> list[tuple[str, str]]:
    """A request's headers for upstream: the client's, but for who it is and, with a ``key``, its own key."""
    left_out = _ASKED | (_KEYS if key else frozenset())
    found = [(name, value) for name, value in headers if name.lower() not in left_out]
    return [*found, ("Authorization", f"Bearer {key}")] if key else found


def named(call: str, program: str, thread: str) -> list[tuple[str, str]]:
    """Who calls, for a gateway, for routers that pin sessions, and for engines without either."""
    ids = {"X-Request-Id": call, "X-Thread-ID": thread}
    return [*ids.items(), *((name, program) for name in _PROGRAM)]


def back(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """A reply's headers for the client."""
    left_out = _HOP | {"content-encoding"}  # it was unpacked here
    return [(name, value) for name, value in headers if name.lower() not in left_out]
