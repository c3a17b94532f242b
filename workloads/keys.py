"""64-bit keys: identities that depend on (seed, program, path) and on nothing else.

Segment ids and random streams are drawn from keys, never from execution
order, so every system sees the same programs.
"""

from __future__ import annotations

import hashlib

_MASK = (1 << 64) - 1


def mix(key: int, n: int) -> int:
    """A 64-bit key for child ``n`` of ``key`` (splitmix64's finaliser)."""
    z = (key + (n + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def key_of(*parts: int | str) -> int:
    """A 64-bit key from any mixture of names and numbers (the root of a tree of keys)."""
    text = "\x1f".join(f"{type(p).__name__[0]}{p}" for p in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
