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


def lines() -> list[str]:
    """A table in Markdown: models by GPUs, in each cell the exponents of ``measured``; the medians last."""
    found = measured()
    gpus = sorted({gpu for _, gpu in found})
    names = [f"{tokens // 1024}k" for tokens in LENGTHS]
    spans = [f"{low} to {high}" for low, high in (*pairwise(names), (names[0], names[-1]))]
    rows = [[model, *(_cell(found.get((model, gpu), ())) for gpu in gpus)] for model in _models(found)]
    medians = [
        f"{median(column):.2f} ({span})"
        for column, span in zip(zip(*found.values(), strict=True), spans, strict=True)
    ]
    table = [["", *gpus], ["---"] * (len(gpus) + 1), *rows]
    return [*(f"| {' | '.join(row)} |" for row in table), "", f"Medians: {', '.join(medians)}."]


def _models(found: dict[tuple[str, str], tuple[float, ...]]) -> list[str]:
    return list(dict.fromkeys(model for model, _ in found))


def _cell(powers: tuple[float, ...]) -> str:
    return ", ".join(f"{power:.2f}" for power in powers) or "-"


def main() -> None:
    """Print it."""
    print("\n".join(lines()))


if __name__ == "__main__":
    main()
