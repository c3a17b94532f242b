"""What it costs to compute KV again: seconds of an engine, linear and quadratic in the context.

The quadratic part is attention: a chunk of a prompt reads all KV before it. Decisions that compare
costs of the same engine depend on the ratio of the two numbers only; their sizes matter where a cost is
weighed against time (``infercept``, ``continuum-ttl``) and in logged prices.
"""

from __future__ import annotations

from dataclasses import dataclass

from systems.knobs import at_least
from systems.protocols import LatencyModel

TOKEN_S = 5.74e-5
"""Seconds per token: ``fitted`` to llama-3.1-8b on an A100, chunks of 2 048."""
TOKEN2_S = 1.49e-9
"""Seconds per token squared, of the same fit."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """``token_s`` * n + ``token2_s`` * n * n seconds for a context of n tokens, and ``restore_s`` more."""

    token_s: float = TOKEN_S
    token2_s: float = TOKEN2_S
    restore_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("token_s", "token2_s", "restore_s"):
            at_least(name, getattr(self, name), 0.0)
        if not self.token_s + self.token2_s:
            raise ValueError("token_s or token2_s must be above 0: computing KV again costs something")

    def seconds(self, tokens: float) -> float:
        """A whole context of ``tokens`` tokens."""
        return self.restore_s + (self.token_s + self.token2_s * tokens) * tokens

    def tail(self, tokens: int, lost: int) -> float:
        """The last ``lost`` of ``tokens`` tokens, the others being there; 0 for none."""
        return 0.0 if lost <= 0 else self.seconds(tokens) - self.seconds(tokens - lost) + self.restore_s


def fitted(latency: LatencyModel, chunk: int = 2048, longest: int = 65_536) -> Rebuild:
    """The two numbers of a latency model: least squares over contexts of 1, 2, 3 .. chunks up to ``longest``.

    Each context is computed alone, chunk after chunk, one step each. Nothing is below zero.
    """
    xs, ys, total = [], [], 0.0
    for start in range(0, longest, chunk):
        total += latency.step([(chunk, start)], 0, 0)
        xs.append(float(start + chunk))
        ys.append(total)
    s2, s3, s4 = (sum(x**power for x in xs) for power in (2, 3, 4))
    t1 = sum(x * y for x, y in zip(xs, ys, strict=True))
    t2 = sum(x * x * y for x, y in zip(xs, ys, strict=True))
    square = (s2 * t2 - s3 * t1) / (s2 * s4 - s3 * s3)
    if square <= 0.0:
        return Rebuild(t1 / s2, 0.0)
    line = (t1 - square * s3) / s2
    return Rebuild(line, square) if line > 0.0 else Rebuild(0.0, t2 / s4)
