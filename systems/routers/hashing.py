"""A hash that is the same in every process and on every machine."""

from __future__ import annotations

from hashlib import blake2b


def hashed(*parts: int) -> int:
    """64 bits of the numbers, in order."""
    text = ",".join(map(str, parts)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
