"""How well generated programs match the trace they were fitted to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from bench.fit import Fit
from bench.stats import Array
from bench.trace import prefix, residual_life
from bench.trace_survey import (
    CALLS,
    LONGEST,
    NEW,
    OUTPUT,
    PROMPT,
    THINK,
    TOOL,
    TOTAL_OUTPUT,
    Survey,
    survey,
)
from bench.trace_tails import KS_5_PERCENT
from workloads.load import load

MARGINALS = (CALLS, NEW, OUTPUT, PROMPT, TOOL, THINK, TOTAL_OUTPUT, LONGEST)
LEAST, MOST = 300, 3_000
"""Programs that are generated for the comparison: as many as the trace has, in these bounds."""
BLUNT = 0.25
"""A 5 % point above this (fewer than some 30 values) would let anything pass."""
CLOSE = 0.1
"""A distance up to this is close, whatever the number of values."""
CONTEXT = 1 << 22


def report(fitted: Fit, path: Path, seed: int) -> dict[str, Any]:
    """Read ``path`` as the workload it is, generate, and compare with the trace.

    Marginals: two-sample Kolmogorov-Smirnov distance with its 5 % point (as if all values were
    independent: those of one program are not, so a distance somewhat above it proves little).
    """
    trace = fitted.survey
    n = min(max(len(trace.programs.programs), LEAST), MOST)
    made = survey(load(f"fitted:{path}", n=n, seed=seed, max_model_len=CONTEXT))
    return {
        "file": str(path),
        "trace": trace.programs.name,
        "programs": {"trace": len(trace.programs.programs), "generated": n},
        "seed": seed,
        "marginals": [m for name in MARGINALS if (m := marginal(name, trace, made))],
        "means": [_means(name, trace, made) for name in (CALLS, PROMPT, TOTAL_OUTPUT)],
        "prefix": {
            key: {"trace": prefix(trace)[key], "generated": prefix(made)[key]}
            for key in ("optimum", "own", "others", "new")
        },
        "residual_life": [
            {
                "quantity": quantity,
                "trace": residual_life(trace.values[name], quantity)["verdict"],
                "generated": residual_life(made.values[name], quantity)["verdict"],
            }
            for name, quantity in ((TOTAL_OUTPUT, "output tokens"), (CALLS, "calls"))
        ],
        "left_out": list(fitted.left_out),
        "arrivals": fitted.arrivals,
        "rate": fitted.parameters["rate"],
    }


def marginal(name: str, trace: Survey, made: Survey) -> dict[str, Any] | None:
    """One quantity: distance, 5 % point, and matches, close, differs or too few; None if neither has it."""
    a, b = trace.values[name], made.values[name]
    if not a.size or not b.size:
        return (
            None
            if a.size == b.size
            else {
                "quantity": name,
                "ks": 1.0,
                "critical": math.nan,
                "verdict": "differs",
                "trace": _median(a),
                "generated": _median(b),
            }
        )
    distance = two_sample(a, b)
    critical = KS_5_PERCENT * math.sqrt((a.size + b.size) / (a.size * b.size))
    verdict = (
        "too few"
        if critical > BLUNT
        else "matches"
        if distance <= critical
        else "close"
        if distance <= CLOSE
        else "differs"
    )
    return {
        "quantity": name,
        "ks": distance,
        "critical": critical,
        "verdict": verdict,
        "trace": _median(a),
        "generated": _median(b),
    }


def two_sample(a: Array, b: Array) -> float:
    """Kolmogorov-Smirnov distance of two samples."""
    both = np.unique(np.concatenate([a, b]))
    one = np.searchsorted(np.sort(a), both, side="right") / a.size
    two = np.searchsorted(np.sort(b), both, side="right") / b.size
    return float(np.abs(one - two).max())


def _median(values: Array) -> float | None:
    return float(np.median(values)) if values.size else None


def _means(name: str, trace: Survey, made: Survey) -> dict[str, Any]:
    return {
        "quantity": name,
        "trace": float(trace.values[name].mean()) if trace.values[name].size else None,
        "generated": float(made.values[name].mean()),
    }
