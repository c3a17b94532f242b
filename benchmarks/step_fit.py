"""What recorded steps say about step times. NumPy only.

A step here is anything with ``prefills``, ``n_decode``, ``sum_ctx`` (as ``LatencyModel.step`` takes them)
and the ``seconds`` it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from systems.latency.calibration import TERMS
from vocabulary import INF, on_grid


class Fitted:
    """Two linear models, as attention is another kernel in either: steps that only decode (1, calls, their
    context) and steps with prefills (1, prefills, their tokens, decodes, their context, pairs).

    Raises ValueError if the recorded steps are all of one kind.
    """

    def __init__(self, name: str, steps: Sequence[Any]) -> None:
        self.name = name
        decoding, mixed = ([step for step in steps if bool(step.prefills) == kind] for kind in (False, True))
        self.decode = nonnegative([(1, step.n_decode, step.sum_ctx) for step in decoding], seconds(decoding))
        self.mixed = nonnegative([_terms(*step[:3]) for step in mixed], seconds(mixed))

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """Seconds of one step; see ``LatencyModel.step``."""
        if prefills:
            return on_grid(float(self.mixed @ _terms(prefills, n_decode, sum_ctx)))
        a, b, _ = self.decode_line(n_decode, sum_ctx)
        return on_grid(a + b * sum_ctx)

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:  # noqa: ARG002
        """See ``LatencyModel.decode_line``."""
        fixed, row, context = map(float, self.decode)
        return fixed + row * n_decode, context, INF


def coefficients(steps: Sequence[Any]) -> dict[str, float]:
    """The best of ``calibration.LinearLatency``: ms per unit of each of its terms, none below 0."""
    told = [_terms(*step[:3]) for step in steps]
    rows = [(1, new + n, calls + n, context, pairs) for _, calls, new, n, context, pairs in told]
    return {term: 1e3 * value for term, value in zip(TERMS, nonnegative(rows, seconds(steps)), strict=True)}


def nonnegative(rows: Sequence[Sequence[float]], target: Any) -> Any:
    """Non-negative least squares; a row's squared error counts by 1 / target, so that neither the many
    short steps nor the few long ones have all the say. Exact, for a handful of columns: the optimum is
    the ordinary one on the columns that it uses, so try every set. Raises ValueError without rows."""
    if not len(rows):
        raise ValueError("no step of a kind to fit: the recorded run needs prefills and pure decode steps")
    columns = np.array(rows, dtype=float)
    sizes = np.maximum(np.abs(columns).max(axis=0), 1e-300)
    scaled, wanted = columns / sizes * (target**-0.5)[:, None], target**0.5
    best, least = np.zeros(len(sizes)), np.inf
    for count in range(1, len(sizes) + 1):
        for chosen in map(list, combinations(range(len(sizes)), count)):
            values = np.linalg.lstsq(scaled[:, chosen], wanted, rcond=None)[0]
            error = float(((scaled[:, chosen] @ values - wanted) ** 2).sum())
            if (values >= 0).all() and error < least * (1 - 1e-12):
                best, least = np.zeros(len(sizes)), error
                best[chosen] = values
    return best / sizes


def seconds(steps: Sequence[Any]) -> Any:
    """What the steps took."""
    return np.array([step.seconds for step in steps], dtype=float)


def separated(left: Any, right: Any, draws: int = 2000) -> int:
    """Sign of mean(left - right) if its paired bootstrap interval (95 %) leaves 0 out, else 0."""
    gap = np.asarray(left) - np.asarray(right)
    picks = np.random.default_rng(1).integers(len(gap), size=(draws, len(gap)))
    low, high = np.quantile(gap[picks].mean(axis=1), (0.025, 0.975))
    return int(low > 0) - int(high < 0)


def _terms(prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> tuple[int, ...]:
    pairs = sum(new * cached + new * (new + 1) // 2 for new, cached in prefills)
    return 1, len(prefills), sum(new for new, _ in prefills), n_decode, sum_ctx, pairs
