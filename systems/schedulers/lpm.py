"""Longest prefix match: the default order of SGLang (arXiv 2312.07104; its schedule_policy.py).

From SGLang: the waiting call with the most cached tokens first, and arrival
order above 128 waiting calls. Ours: ties by arrival. Left out: SGLang holds
back a call whose uncached prefix another waiting call would bring in anyway;
a policy here sees cached prefixes only, not prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from systems.schedulers.cache_order import CacheOrder
from vocabulary import Segment


class Lpm(CacheOrder):
    """Most cached tokens first; knobs of ``CacheOrder``."""

    name = "lpm"

    def keys(self, prefixes: Mapping[int, Sequence[Segment]]) -> dict[int, float]:
        """Minus the cached tokens."""
        return {seq: -float(sum(length for _, length in prefix)) for seq, prefix in prefixes.items()}


SCHEDULER = Lpm
