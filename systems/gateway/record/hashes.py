"""Chained salted hashes: two prompts have equal hashes as far as their blocks are equal, and nothing else.

A hash takes in that of the block before, so it names everything up to its end. Without the salt, which
is made for one recording and never leaves the process, no text can be tried against them.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

TEXT_BLOCK: Final = 128
"""Bytes of text that have a hash; a piece ends with a shorter block."""
ID_BLOCK: Final = 64
"""Bytes of token ids that have a hash: 16 tokens, a KV block."""
_DIGEST = 8


class Hashes:
    """``fingerprint``: tells recordings of different salts apart, and says nothing of the salt."""

    def __init__(self, salt: bytes | None = None) -> None:
        salt = os.urandom(32) if salt is None else salt
        self._base = hashlib.blake2b(key=salt, digest_size=_DIGEST)
        self.fingerprint = self.of(b"fingerprint").hex()

    def of(self, data: bytes, after: bytes = b"") -> bytes:
        """Eight bytes."""
        found = self._base.copy()
        found.update(after)
        found.update(data)
        return found.digest()

    def blocks(self, data: bytes, after: bytes, size: int) -> list[bytes]:
        """The hash of each block of ``size`` bytes behind ``after``; the last one may be shorter."""
        found: list[bytes] = []
        copy = self._base.copy
        for at in range(0, len(data), size):
            one = copy()
            one.update(after + data[at : at + size])
            after = one.digest()
            found.append(after)
        return found
