"""Latency and transfer models whose times a person can compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vocabulary import INF, on_grid


@dataclass(frozen=True)
class ConstantLatency:
    """Every step takes ``seconds`` (on the grid), whatever is in it."""

    seconds: float = 1.0
    name: str = "constant"

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        return on_grid(self.seconds)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:
        return self.seconds, 0.0, INF


@dataclass(frozen=True)
class BlockTransfer:
    """Seconds to move blocks one way: ``setup``, and ``per_block`` for each (both on the grid)."""

    per_block: float = 0.25
    setup: float = 0.0

    def seconds(self, blocks: int) -> float:
        return on_grid(self.setup + self.per_block * blocks) if blocks else 0.0


@dataclass(frozen=True)
class LinearLatency:
    """Seconds, all linear: ``base``, per new prefill token, per new token and token before it,
    per decoding call, per token of decode context."""

    base: float = 5e-3
    per_prefill_token: float = 1e-4
    per_prefill_ctx: float = 1e-8
    per_decode: float = 3e-4
    per_ctx: float = 1.7e-7
    name: str = "linear"

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        a, b, _ = self.decode_line(n_decode, sum_ctx)
        for new, cached in prefills:
            a += self.per_prefill_token * new + self.per_prefill_ctx * new * cached
        return on_grid(a + b * sum_ctx)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:
        return self.base + self.per_decode * n_decode, self.per_ctx, INF
