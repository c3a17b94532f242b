"""Step times of an engine: a table of measured kernels, or a constant.

A step's time is additive over what vLLM launches in it:

    overhead + shared(tokens) + logits(rows) + decode attention(n, mean context)
             + sum of context attention(new, cached) over the prefills

Tokens pass the shared layers (embedding, norms, GEMMs) together; each call
has one row in the LM head; attention is per call. Seconds throughout.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from vocabulary import INF, on_grid

_ROUND = 1.5 * 2.0**22  # vocabulary.on_grid, inlined where it runs several times a step
_TOP = 2.0**21

Line = tuple[float, float]
"""(a, b): the function a + b * x."""
Cell = tuple[float, float, float, float]
"""(k, kx, ky, kxy): the function k + kx * x + ky * y + kxy * x * y."""


class TableLatency:
    """Step times interpolated in a table of measured kernel times.

    ``table`` is the parsed JSON of ``tables/`` (grids in tokens, times in ms;
    docs/latency.md describes it), ``digest`` the sha256 of that file.
    Between knots every part is (bi)linear; beyond the last knot it goes on
    with the last slope, shared layers and LM head with that of the last half.
    Decode time never falls when contexts grow.
    Raises ValueError if a field is missing or a grid does not fit its times.
    """

    uncertainty = (0.85, 1.15)
    """(low, high) of absolute times while no run of a real engine is fitted, unless the table has its own
    (docs/latency.md)."""

    def __init__(self, table: Mapping[str, Any], digest: str) -> None:
        self._table = table
        self.digest = digest
        try:
            self._read(table)
        except KeyError as missing:
            raise ValueError(f"latency table: field {missing} is missing") from None
        self._attention: dict[int, tuple[list[int], list[Line]]] = {}
        self._decode: dict[int, tuple[list[int], list[tuple[float, float, float]]]] = {}

    def _read(self, table: Mapping[str, Any]) -> None:
        self.model: str = table["model"]
        self.gpu: str = table["gpu"]
        self.tp: int = table["tp"]
        self.name = f"{self.model}{f':tp{self.tp}' if self.tp > 1 else ''}/{self.gpu}"
        self.kv_blocks: int = table["kv"]["blocks"]
        self.max_model_len: int = table["max_model_len"]
        self.provenance: dict[str, Any] = dict(table["source"])
        if "uncertainty" in table:
            self.uncertainty = _uncertainty(table["uncertainty"])
        self._overhead = on_grid(table["overhead_ms"] / 1e3)
        self._shared = _Curve(*_grid1(table, "shared", "tokens"))
        self._logits = _Curve(*_grid1(table, "logits", "rows"))
        self._batch, self._context, self._decode_s = _grid2(table, "decode_attention", "batch", "context")
        new, cached, seconds = _grid2(table, "context_attention", "new", "cached")
        self._new, self._cached = new[1:-1], cached[1:-1]
        self._cells = _cells(new, cached, seconds)

    def __reduce__(self) -> tuple[Callable[..., TableLatency], tuple[Mapping[str, Any], str]]:
        return TableLatency, (self._table, self.digest)

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:
        """Seconds of one step; see ``LatencyModel.step``. The order of ``prefills`` does not matter.

        Raises ValueError if the step is empty.
        """
        if not prefills:
            a, b, _ = self.decode_line(n_decode, sum_ctx)
            return on_grid(a + b * sum_ctx)
        tokens, seconds, cells, news, knots = n_decode, 0.0, self._cells, self._new, self._cached
        for new, cached in prefills:
            tokens += new
            k, kx, ky, kxy = cells[bisect_right(news, new)][bisect_right(knots, cached)]
            part = k + kx * new + (ky + kxy * new) * cached
            if part > 0.0:  # each term on the grid: their sum is exact, whatever its order
                seconds += (part + _ROUND) - _ROUND
        if n_decode:
            try:
                bounds, lines = self._attention[n_decode]
            except KeyError:
                bounds, lines = self._attention_lines(n_decode)
            a, b = lines[bisect_right(bounds, sum_ctx)]
            seconds += ((a + b * sum_ctx) + _ROUND) - _ROUND
        seconds += self._shared[tokens] + self._logits[n_decode + len(prefills)] + self._overhead
        if seconds < _TOP:
            return seconds
        return on_grid(seconds)  # raises

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:
        """(a, b, limit) of pure decode steps; see ``LatencyModel.decode_line``.

        Raises ValueError if ``n_decode`` is not positive.
        """
        try:
            bounds, lines = self._decode[n_decode]
        except KeyError:
            bounds, lines = self._decode[n_decode] = self._decode_lines(n_decode)
        return lines[bisect_right(bounds, sum_ctx)]

    def describe(self) -> str:
        """Where the step times come from, and how far off they may be."""
        made = " ".join(
            str(self.provenance[k]) for k in ("package", "version", "kernels") if self.provenance.get(k)
        )
        return f"{made or 'table'}, not calibrated: absolute times {band(self.uncertainty)}"

    def _decode_lines(self, n: int) -> tuple[list[int], list[tuple[float, float, float]]]:
        bounds, lines = self._attention_lines(n)
        fixed = self._shared[n] + self._logits[n] + self._overhead
        limits = [*bounds, INF]
        return bounds, [(fixed + a, b, limit) for (a, b), limit in zip(lines, limits, strict=True)]

    def _attention_lines(self, n: int) -> tuple[list[int], list[Line]]:
        """Decode attention of ``n`` calls as lines in the sum of contexts, and where they meet."""
        try:
            return self._attention[n]
        except KeyError:
            context = self._context
            lines = [(a, b / n) for a, b in _lines(context, self._decode_row(n))]
            self._attention[n] = [n * c for c in context[1:-1]], lines
            return self._attention[n]

    def _decode_row(self, n: int) -> list[float]:
        """Seconds of decode attention over the context grid for a batch of ``n``."""
        if n < 1:
            raise ValueError(f"a decode step needs at least one call, got {n}")
        i = bisect_right(self._batch[1:-1], n)
        low, high = self._batch[i], self._batch[i + 1]
        part = (n - low) / (high - low)
        row = [max(s0 + (s1 - s0) * part, 0.0) for s0, s1 in zip(*self._decode_s[i : i + 2], strict=True)]
        return list(accumulate(row, max))


class ConstantLatency:
    """Every step takes ``seconds`` (rounded to the grid), as in Autellix Fig. 2."""

    def __init__(self, seconds: float) -> None:
        self.seconds = on_grid(seconds)
        if not self.seconds:
            raise ValueError(f"a step must take time, got {seconds!r} s")
        self.name = f"constant {seconds:g} s"

    def step(self, prefills: Sequence[tuple[int, int]], n_decode: int, sum_ctx: int) -> float:  # noqa: ARG002
        """The constant, in seconds."""
        return self.seconds

    def decode_line(self, n_decode: int, sum_ctx: int) -> tuple[float, float, float]:  # noqa: ARG002
        """(constant, 0, INF)."""
        return self.seconds, 0.0, INF


def band(uncertainty: tuple[float, float]) -> str:
    """(low, high) in words: "+-15 %", or "x0.67..x1.70" where it is not the same both ways."""
    low, high = uncertainty
    if abs(low + high - 2.0) < 1e-9:
        return f"+-{(high - 1) * 100:.0f} %"
    return f"x{low:.2f}..x{high:.2f}"


def _uncertainty(field: Sequence[float]) -> tuple[float, float]:
    if len(field) != 2 or not 0.0 < field[0] <= field[1] < INF:
        raise ValueError("latency table: uncertainty must be two factors, low and high")
    return field[0], field[1]


def _lines(xs: Sequence[int], ys: Sequence[float]) -> list[Line]:
    """The lines through neighbouring knots."""
    slopes = [(ys[i + 1] - ys[i]) / (xs[i + 1] - xs[i]) for i in range(len(xs) - 1)]
    return [(y - slope * x, slope) for x, y, slope in zip(xs, ys, slopes, strict=False)]


class _Curve(dict[int, float]):
    """Piecewise linear through the knots, on the time grid; beyond them never downwards.

    Beyond the last knot it goes on as from half of it: where kernels step up at tiles, the last piece
    alone may be flat. Values are kept: there are as many as tokens in a step's budget.
    """

    def __init__(self, xs: Sequence[int], ys: Sequence[float]) -> None:
        super().__init__()
        self._inner = list(xs[1:])
        self._lines = _lines(xs, ys)
        i = max(bisect_right(xs, xs[-1] // 2) - 1, 0)
        slope = max((ys[-1] - ys[i]) / (xs[-1] - xs[i]), 0.0)
        self._lines.append((ys[-1] - slope * xs[-1], slope))

    def __missing__(self, x: int) -> float:
        a, b = self._lines[bisect_right(self._inner, x)]
        self[x] = seconds = on_grid(a + b * x)
        return seconds


def _cells(xs: Sequence[int], ys: Sequence[int], z: Sequence[Sequence[float]]) -> list[list[Cell]]:
    """The bilinear functions of a grid's cells."""
    return [
        [_cell((xs[i], xs[i + 1]), (ys[j], ys[j + 1]), (*z[i][j : j + 2], *z[i + 1][j : j + 2]))
         for j in range(len(ys) - 1)]
        for i in range(len(xs) - 1)
    ]  # fmt: skip


def _cell(x: tuple[int, int], y: tuple[int, int], corners: Sequence[float]) -> Cell:
    """Bilinear through the corners (x0,y0), (x0,y1), (x1,y0), (x1,y1)."""
    c00, c01, c10, c11 = (c / ((x[1] - x[0]) * (y[1] - y[0])) for c in corners)
    return (
        c00 * x[1] * y[1] - c01 * x[1] * y[0] - c10 * x[0] * y[1] + c11 * x[0] * y[0],
        -c00 * y[1] + c01 * y[0] + c10 * y[1] - c11 * y[0],
        -c00 * x[1] + c01 * x[1] + c10 * x[0] - c11 * x[0],
        c00 - c01 - c10 + c11,
    )


def _grid1(table: Mapping[str, Any], part: str, axis: str) -> tuple[list[int], list[float]]:
    """Knots and seconds of a one-dimensional part."""
    xs, ms = table[part][axis], table[part]["ms"]
    _check_axis(part, axis, xs)
    return xs, _seconds(part, ms, len(xs))


def _grid2(
    table: Mapping[str, Any], part: str, x: str, y: str
) -> tuple[list[int], list[int], list[list[float]]]:
    """Both axes and seconds of a two-dimensional part."""
    xs, ys, ms = table[part][x], table[part][y], table[part]["ms"]
    _check_axis(part, x, xs)
    _check_axis(part, y, ys)
    if len(ms) != len(xs):
        raise ValueError(f"latency table: {part}.ms has {len(ms)} rows for {len(xs)} values of {x}")
    return xs, ys, [_seconds(part, row, len(ys)) for row in ms]


def _check_axis(part: str, axis: str, xs: Sequence[int]) -> None:
    if len(xs) < 2 or any(b <= a for a, b in pairwise(xs)):
        raise ValueError(f"latency table: {part}.{axis} must be at least two increasing numbers")


def _seconds(part: str, ms: Sequence[float], n: int) -> list[float]:
    if len(ms) != n or not all(math.isfinite(t) and t >= 0 for t in ms):
        raise ValueError(f"latency table: {part}.ms must hold {n} times >= 0 per row")
    return [t / 1e3 for t in ms]
