"""What it costs to compute KV again, by length: ``python -m benchmarks.recompute`` (under 1 s).

ThunderAgent's choice of victims assumes about the square of the context at a fixed chunk size. Here a context
is computed alone, chunk after chunk, a step each, with the latencies of every table, uncalibrated; where the
seconds grow as tokens^a, ``a`` is the slope between two lengths on logarithmic scales.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

from systems.latency.catalog import load_table, tables
from systems.protocols import LatencyModel

CHUNK = 2048
LENGTHS = (4096, 16_384, 65_536)
"""Tokens; the exponents are those from each to the next, and from the first to the last."""


def seconds(latency: LatencyModel, tokens: int, chunk: int = CHUNK) -> float:
    """A context of ``tokens`` tokens, whose last chunk may be a short one."""
    return sum(latency.step([(min(chunk, tokens - at), at)], 0, 0) for at in range(0, tokens, chunk))


def exponent(latency: LatencyModel, low: int, high: int, chunk: int = CHUNK) -> float:
    """By which power of the tokens the cost grows from ``low`` to ``high`` tokens."""
    ratio = seconds(latency, high, chunk) / seconds(latency, low, chunk)
    return math.log(ratio) / math.log(high / low)


def measured(chunk: int = CHUNK) -> dict[tuple[str, str], tuple[float, ...]]:
    """Of each table, (model, gpu): exponents between neighbours of LENGTHS, and over all of them."""
    spans = [*pairwise(LENGTHS), (LENGTHS[0], LENGTHS[-1])]
    return {
        name: tuple(exponent(load_table(*name), low, high, chunk) for low, high in spans) for name in tables()
    }


def main() -> None:
    """The table, and the median of its columns."""
    names = [f"{n // 1024}k" for n in LENGTHS]
    spans = [*(f"{a} to {b}" for a, b in pairwise(names)), f"{names[0]} to {names[-1]}"]
    print("".join(f"{column:>22}" for column in ("model", "gpu", *spans)))
    found = measured()
    for name, powers in found.items():
        print("".join(f"{cell:>22}" for cell in (*name, *(f"{power:.2f}" for power in powers))))
    middle = (f"{median(column):.2f}" for column in zip(*found.values(), strict=True))
    print("".join(f"{cell:>22}" for cell in ("median", "", *middle)))


if __name__ == "__main__":
    main()
