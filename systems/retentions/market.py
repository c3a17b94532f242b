"""What a block-second of an engine's KV is worth: the price at which what threads want to keep just fits."""

from __future__ import annotations

from collections.abc import Iterable

Bid = tuple[float, float]
"""What a thread would pay for a block-second at most, and how many blocks it wants."""


def clearing_price(room: float, bids: Iterable[Bid]) -> float:
    """The bid of the first that no longer fits into ``room`` blocks, dearest first; 0 where all fit.

    The dual price of the fractional knapsack: whoever bids more is worth keeping, whoever bids less is not.
    """
    taken = 0.0
    for price, blocks in sorted(bids, reverse=True):
        taken += blocks
        if taken > room:
            return price
    return 0.0


class Meter:
    """A price that changes now and then, and what a block has cost so far (block-seconds per block)."""

    __slots__ = ("_since", "_total", "price")

    def __init__(self) -> None:
        self.price = 0.0
        self._total = 0.0
        self._since = 0.0

    def set(self, price: float, now: float) -> None:
        """From ``now`` (s) on it is ``price``."""
        self._total, self._since = self.total(now), max(now, self._since)
        self.price = price

    def total(self, now: float) -> float:
        """What a block kept from the beginning until ``now`` has cost; not before the last change."""
        return self._total + self.price * max(0.0, now - self._since)
