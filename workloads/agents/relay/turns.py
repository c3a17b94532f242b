"""Which turn a call is: numbered per program and thread, and a retry is the turn that it repeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

RETRIED = "x-stainless-retry-count"
"""OpenAI's and Anthropic's SDKs say with it that they try again."""


@dataclass
class _Thread:
    """``seen``: the turn that had a body, by its digest; ``failed``: those without an answer."""

    turns: int = 0
    seen: dict[bytes, int] = field(default_factory=dict)
    failed: dict[bytes, int] = field(default_factory=dict)


class Turns:
    """Indices from 0. The same body is the same turn if that has failed or the client says so.

    Without either it is a turn of its own: agents do sample.
    """

    def __init__(self) -> None:
        self._threads: defaultdict[tuple[int, str], _Thread] = defaultdict(_Thread)

    def take(self, program: int, thread: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The index of a call that arrives. ``headers`` are found by names in lower case."""
        known, digest = self._threads[program, thread], _digest(body)
        index = known.failed.pop(digest, None)
        if index is None and headers.get(RETRIED, "0") != "0":
            index = known.seen.get(digest)
        if index is None:
            index, known.turns = known.turns, known.turns + 1
        known.seen[digest] = index
        return index

    def failed(self, program: int, thread: str, body: bytes, index: int) -> None:
        """It was not answered: if it comes again, it is the same turn."""
        self._threads[program, thread].failed[_digest(body)] = index


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
