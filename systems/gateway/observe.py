"""What the gateway tells who watches it: event log, Prometheus, tests. Times in seconds since it began."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from vocabulary import GateEvent, KeepEvent

OUTCOMES = ("finished", "error", "refused", "disconnected", "lost", "timeout")
"""Of a passage: its reply went out whole; the engine answered with an error, passed on; we refused it (bad
request, no key, too large); the client left; the engine died or broke off; held or queued for too long, or
not over when the gateway stopped."""


@dataclass(slots=True, eq=False)
class Passage:
    """One call on its way through. Times are NaN where it never came to that.

    ``program`` is the gateway's number, ``name`` the client's ("" for a one-shot program); ``index`` counts
    the calls of a thread. ``t_admit``: the gate let it go; ``t_send``: sent to ``engine`` (once it has left:
    sent for the first time, to an engine that may have been lost); ``t_first``, ``t_last``: first and last
    bytes of the reply. Tokens are the engine's ``usage`` (-1: it said none);
    ``served`` in the unit of the system's scheduler, ``exec_s`` and ``wait_s`` as charged to its program,
    ``source`` of them: log (the scheduler's own) or usage. ``attempt``: 1, more where it is a retry of the
    same turn. ``status``: HTTP status sent to the client, 0 if none was.
    """

    seq: int
    program: int
    name: str
    thread: str
    index: int
    endpoint: str
    stream: bool
    t_arrive: float
    engine: int = -1
    attempt: int = 1
    t_admit: float = math.nan
    t_send: float = math.nan
    t_first: float = math.nan
    t_last: float = math.nan
    t_end: float = math.nan
    status: int = 0
    outcome: str = ""
    reason: str = ""
    prompt_tokens: int = -1
    output_tokens: int = -1
    cached_tokens: int = -1
    chunks: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    served: float = 0.0
    exec_s: float = 0.0
    wait_s: float = 0.0
    source: str = ""


class Observer(Protocol):
    """Told at once, in order; must be quick and never raise."""

    def arrived(self, call: Passage) -> None:
        """Identified, and about to ask the gate."""

    def held(self, call: Passage) -> None:
        """The gate holds it."""

    def sent(self, call: Passage) -> None:
        """On its way to ``call.engine``."""

    def first(self, call: Passage) -> None:
        """The first bytes of the reply went to the client."""

    def left(self, call: Passage) -> None:
        """It is over, ``outcome`` says how. Every call that arrived leaves exactly once."""

    def started(self, program: int, name: str, now: float) -> None:
        """A program has a row now."""

    def ended(self, program: int, name: str, why: str, now: float) -> None:
        """Its row is gone: ended (the client said so), one-shot, or lease (nobody called for too long)."""

    def engine(self, engine: int, what: str, reason: str, now: float) -> None:
        """An engine is up, down, or slow (it does not answer in time)."""

    def gate(self, event: GateEvent, name: str) -> None:
        """What the gate did to the program called ``name``; ``drop``: a pause of it is to free KV."""

    def kept(self, event: KeepEvent, name: str) -> None:
        """What the retention policy thought of what the program called ``name`` left, or what came of it."""
