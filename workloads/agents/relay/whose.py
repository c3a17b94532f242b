"""Whose call it is: program and thread, by the URL it came to, or by what real clients say of themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from workloads.agents.contract import MAIN
from workloads.agents.relay.dialect import Refused

LONGEST = 64
"""Characters of a thread's name. A call's, with the run's, is a header, of which our gateway keeps 128."""
PARENT = "x-parent-session-id"
SESSIONS = ("x-program-id", "x-session-id", "x-claude-code-session-id", "session-id", "x-session-affinity")
THREADS = ("x-thread-id", "thread-id", "x-claude-code-agent-id")
"""What Claude Code, Codex and OpenCode send (docs/gateway.md)."""
IDENTITY = frozenset({*SESSIONS, *THREADS, PARENT, "x-claude-code-parent-agent-id"})
_PATH = re.compile(r"/p/(?P<program>[^/]+)/(?P<thread>[^/]+)(?P<rest>/v1/.*)")
_THREAD = re.compile(r"[!-~]+")
_ESCAPED = str.maketrans({"%": "%25", ".": "%2E"})
"""In a call's name the thread stands between dots."""


class Place(NamedTuple):
    """Where a request came: ``program`` and ``thread`` as the URL has them ("": it does not), and the path
    behind them, from /v1/ on, not decoded."""

    program: str
    thread: str
    rest: str


class Numbers:
    """Programs that have names instead of numbers: numbered as they first appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        """The number of a program."""
        return self._numbers.setdefault(name, len(self._numbers))


def place_of(path: str) -> Place:
    """``path``: not decoded. Raises Refused if nothing is there."""
    found = _PATH.fullmatch(path)
    if found is not None:
        return Place(unquote(found["program"]), unquote(found["thread"]), found["rest"])
    if not path.startswith("/v1/"):
        raise Refused(f"{path[:200]}: a base URL ends in /p/PROGRAM/THREAD/v1, or in /v1", 404)
    return Place("", "", path)


def whose(place: Place, headers: Mapping[str, str], number_of: Callable[[str], int]) -> tuple[int, str]:
    """(program, thread) of a call. ``headers`` are found by names in lower case.

    Where the URL says it, X-Thread-ID may name another thread. Else the call is of the session that the
    client names; calls that name none are of one program, whose name is "". A dot in a thread's name becomes
    %2E (and % becomes %25): the thread is called so from here on. Raises Refused.
    """
    if not place.program:
        name, thread = _own_words(headers)
        return number_of(name), _thread(thread)
    if not (place.program.isascii() and place.program.isdecimal()):
        raise Refused(f"the program in /p/PROGRAM/THREAD/v1 must be a number, got {place.program!r:.60}")
    return int(place.program), _thread(headers.get(THREADS[0]) or place.thread)


def _own_words(headers: Mapping[str, str]) -> tuple[str, str]:
    """(session, thread): a sub-agent's session is a thread of its parent's; a main thread is called so."""
    name, thread = _first(headers, SESSIONS), _first(headers, THREADS)
    if parent := headers.get(PARENT):
        return parent, thread or name
    return name, MAIN if thread in ("", name) else thread


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := headers.get(name))), "")


def _thread(name: str) -> str:
    escaped = name.translate(_ESCAPED)
    if not _THREAD.fullmatch(escaped) or len(escaped) > LONGEST:
        raise Refused(
            f"a thread's name has 1 to {LONGEST} printable ASCII characters, got {name!r:.60} (a dot and a % "
            "count three)"
        )
    return escaped
