"""Token ids for segments: what a real server is sent in place of (segment, offset) pairs.

Token ``offset`` of a segment is a pseudo-random function of (salt, segment id, offset) over the
vocabulary, so equal pairs are equal tokens, in every process and in any order, and unequal ones
share a prefix by chance only. A reply's segment has the ids that the server really returned.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from vocabulary import Segment

_CACHED = 8192


class TokenIds:
    """Ids in [0, ``vocabulary``), at most 65 536; two salts share nothing."""

    def __init__(self, vocabulary: int, salt: str) -> None:
        if not 1 <= vocabulary <= 1 << 16:
            raise ValueError(f"a vocabulary has 1 to 65536 tokens, got {vocabulary}")
        self.vocabulary = vocabulary
        self.salt = salt
        self.segment = lru_cache(maxsize=_CACHED)(self._segment)

    def _segment(self, segment: int, length: int) -> tuple[int, ...]:
        """The first ``length`` ids of a segment: an extendable hash, two bytes per token."""
        data = hashlib.shake_128(f"{self.salt}\x1f{segment}".encode()).digest(2 * length)
        return tuple(word % self.vocabulary for word in struct.unpack(f"<{length}H", data))


class Texts:
    """What one program has said and heard: its prompts as token ids."""

    def __init__(self, ids: TokenIds) -> None:
        self._ids = ids
        self._replies: dict[int, Sequence[int]] = {}

    def prompt(self, segments: Iterable[Segment]) -> list[int]:
        """The ids of a prompt. Raises ValueError if it quotes more of a reply than came."""
        tokens: list[int] = []
        for segment, length in segments:
            reply = self._replies.get(segment)
            if reply is None:
                tokens.extend(self._ids.segment(segment, length))
            elif length <= len(reply):
                tokens.extend(reply[:length])
            else:
                raise ValueError(f"a prompt quotes {length} tokens of a reply of {len(reply)}")
        return tokens

    def replied(self, segment: int, tokens: Sequence[int]) -> None:
        """The server's reply becomes the content of its segment."""
        self._replies[segment] = tokens
