"""Differences that are meant: in which cases, through which gateway, of what, and why."""

from __future__ import annotations

import re
from typing import NamedTuple


class Explained(NamedTuple):
    """``cases``: a pattern (re) that a case's whole name matches; ``gateway``: a name, "" all; ``where``: a
    pattern that the difference begins with."""

    cases: str
    gateway: str
    where: str
    why: str

    def covers(self, case: str, gateway: str, line: str) -> bool:
        """Whether it says why this differs."""
        named = self.gateway in ("", gateway) and re.fullmatch(self.cases, case) is not None
        return named and re.match(self.where, line) is not None


_OWN = r"headers\.(server|vary|x-request-id|www-authenticate)|body\.(error|type)"
EXPLAINED: tuple[Explained, ...] = (
    Explained(
        r".* (no JSON|empty body|an array)", "", _OWN,
        "The gateway reads a body to know whose call it is: what is no JSON object it refuses itself, 400 as "
        "the engine, in words of its own and without the engine's headers.",
    ),
    Explained(
        r"/v1/(chat/completions|completions|responses|messages) (prompt missing|thinking.*)", "",
        r"body\.error\.message",
        "The engine's words count the fields of the body, and ours are among them.",
    ),
    Explained(
        r".*(no key|a wrong key|key without Bearer|wrong key in x-api-key)", "own keys", _OWN,
        "The gateway's keys are checked by the gateway: 401 as the engine, in the dialect's error shape, "
        "with WWW-Authenticate; the engine never sees it.",
    ),
    Explained(
        r".* key in x-api-key", "own keys", r"status|headers\.vary|body",
        "vLLM takes its key as Bearer only. A gateway with keys of its own takes x-api-key, too (Anthropic's "
        "clients send that), and has the engine's key.",
    ),
    Explained(
        r"/v1/(chat/)?completions .*, stream", "own keys",
        r"streams\.choice \d+\.events\[\d+\]\[1\]\.system_fingerprint",
        "Where no call log says what a stream cost, the gateway asks for its usage and takes that event out "
        "again. vLLM puts system_fingerprint into its last event, which is then that one.",
    ),
    Explained(
        r"/v1/responses own request_id.*", "", r".*\.id: ",
        "Charges are found by the request's name, so the gateway gives it one of its own (docs/gateway.md).",
    ),
    Explained(
        r"GET /v1", "", r"headers|body", "No path of an API: 404 as the engine, in the gateway's words.",
    ),
)  # fmt: skip
