"""A table that also knows what decoding calls cost beside a prefill.

A kernel that takes prefills and decodes together is not the sum of the two alone: on a consumer
card a decoding call beside a prefill takes up to twice its time. Where a profile measured such batches, the
table has one part more, ``mixed_attention``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from systems.latency.model import TableLatency
from vocabulary import on_grid

PART = "mixed_attention"


class BesideLatency(TableLatency):
    """A ``TableLatency`` whose mixed steps take decode attention from a grid of its own.

    ``mixed_attention``: axes ``new`` (tokens of the step's prefills), ``batch`` (decoding calls) and
    ``context`` (their mean context, tokens); ``ms[new][batch][context]`` is what the decoding calls add to
    the prefills' attention. Trilinear between knots, the first knot's below the first; beyond the last one
    of ``new`` it stays, of ``batch`` it grows in proportion, of ``context`` with the last slope.
    Pure steps are the table's own. Raises ValueError if a field is missing or a grid does not fit its times.
    """

    def __init__(self, table: Mapping[str, Any], digest: str) -> None:
        super().__init__(table, digest)
        try:
            part = table[PART]
            self._axes = tuple([int(x) for x in part[axis]] for axis in ("new", "batch", "context"))
            self._beside = [[list(accumulate(row, max)) for row in plane] for plane in part["ms"]]
        except KeyError as missing:
            raise ValueError(f"latency table: field {PART}.{missing.args[0]} is missing") from None
        self._check()

    def _check(self) -> None:
        for name, axis in zip(("new", "batch", "context"), self._axes, strict=True):
            if len(axis) < 2 or any(b <= a for a, b in pairwise(axis)):
                raise ValueError(f"latency table: {PART}.{name} must be at least two increasing numbers")
        new, batch, context = map(len, self._axes)
        shape = [[len(row) for row in plane] for plane in self._beside]
        if shape != [[context] * batch] * new:
            raise ValueError(f"latency table: {PART}.ms must hold {new} x {batch} x {context} times")
        if any(ms < 0.0 for plane in self._beside for row in plane for ms in row):
            raise ValueError(f"latency table: {PART}.ms must not be negative")

    def __reduce__(self) -> tuple[Any, ...]:
        return BesideLatency, (self._table, self.digest)

    def parts_alone(self) -> TableLatency:
        """The same table without its mixed part: decode attention as in a step of its own."""
        return TableLatency(self._table, self.digest)

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """Seconds of one step; see ``LatencyModel.step``. Raises ValueError if the step is empty."""
        if not prefills or not n_decode:
            return super().step(prefills, n_decode, sum_ctx)
        new = sum(tokens for tokens, _ in prefills)
        seconds = super().step(prefills, 0, 0) - self._shared[new] - self._logits[len(prefills)]
        seconds += self._shared[new + n_decode] + self._logits[len(prefills) + n_decode]
        return on_grid(seconds + on_grid(self.beside_s(new, n_decode, sum_ctx / n_decode)))

    def beside_s(self, new: int, batch: int, context: float) -> float:
        """Seconds that ``batch`` decoding calls of ``context`` tokens add to ``new`` tokens of prefills."""
        calls = min(batch, self._axes[1][-1])
        at = (min(new, self._axes[0][-1]), calls, context)
        (i, u), (j, v), (k, w) = (_place(axis, x) for axis, x in zip(self._axes, at, strict=True))
        near, far = (
            _mix(
                _mix(plane[j][k], plane[j][k + 1], w),
                _mix(plane[j + 1][k], plane[j + 1][k + 1], w),
                v,
            )
            for plane in self._beside[i : i + 2]
        )
        return _mix(near, far, u) / 1e3 * (batch / calls)


def _place(axis: Sequence[int], x: float) -> tuple[int, float]:
    """(i, part): x lies at ``part`` of the way from knot i to the next; never before the first knot."""
    i = min(max(bisect_right(axis, x) - 1, 0), len(axis) - 2)
    return i, max(0.0, (x - axis[i]) / (axis[i + 1] - axis[i]))


def _mix(a: float, b: float, part: float) -> float:
    return a + (b - a) * part


def table_latency(table: Mapping[str, Any], digest: str) -> TableLatency:
    """The model a table asks for. Raises ValueError if it is no table."""
    return BesideLatency(table, digest) if PART in table else TableLatency(table, digest)
