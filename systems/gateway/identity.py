"""Whose call it is: program, thread and the key of a retry, from body or headers (docs/gateway.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from systems.gateway.errors import Refused

LONGEST = 512
"""Characters of an id."""
PARENT = "x-parent-session-id"
PROGRAM_HEADERS = (
    "x-program-id", "x-session-id", "x-claude-code-session-id", "session-id", "x-session-affinity"
)  # fmt: skip
THREAD_HEADERS = ("x-thread-id", "thread-id", "x-claude-code-agent-id")
"""Claude Code names its session and its sub-agents, Codex session and thread, OpenCode a session, which of
a sub-agent has a parent."""


class Caller(NamedTuple):
    """``name`` of the program, "" for a program of one call; ``key``: Idempotency-Key, ``request_id``:
    X-Request-Id, "" where there is none; ``retried``: the client says that it is a retry; ``who``: a hash of
    its credentials."""

    name: str
    thread: str
    key: str
    retried: bool
    request_id: str = ""
    who: int = 0


def caller_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> Caller:
    """The body's ids come before the headers', which are found by names in lower case.

    Raises Refused for an id that is none.
    """
    name = _from_body(body, ("program_id", "session_id")) or _first(headers, PROGRAM_HEADERS)
    thread = _from_body(body, ("thread_id",)) or _first(headers, THREAD_HEADERS)
    parent = headers.get(PARENT)
    if parent:  # a sub-agent's session is a thread of its parent's
        name, thread = _checked(PARENT, parent), thread or name
    key, request_id = headers.get("idempotency-key", ""), headers.get("x-request-id", "")
    retried = headers.get("x-stainless-retry-count", "0") != "0"
    who = hash((headers.get("authorization"), headers.get("x-api-key")))
    return Caller(name, thread, key, retried, request_id, who)


def program_id(body: Mapping[str, Any]) -> str:
    """Of /programs/start and /programs/end. Raises Refused if there is none."""
    value = body.get("program_id")
    if value is None or value == "":
        raise Refused(400, "program_id is missing: which program?", param="program_id")
    return _checked("program_id", value)


def _from_body(body: Mapping[str, Any], names: tuple[str, ...]) -> str:
    extra, metadata = body.get("vllm_xargs"), body.get("metadata")
    if isinstance(extra, dict):
        value = extra.get(names[0])
        if value is not None:
            return _checked(f"vllm_xargs.{names[0]}", value)
    for name in names:
        value = body.get(name)
        if value is None and isinstance(metadata, dict):
            value = metadata.get(name)
        if value is not None:
            return _checked(name, value)
    return ""


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        value = headers.get(name)
        if value:
            return _checked(name, value)
    return ""


def _checked(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Refused(400, f"{name} must be text or a whole number, got {value!r:.60}", param=name)
    text = str(value)
    if len(text) > LONGEST:
        raise Refused(400, f"{name} has {len(text)} characters, at most {LONGEST} are possible", param=name)
    return text
