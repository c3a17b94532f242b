"""What a program set looks like before anything serves it (``bench trace stats``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from bench.offline import walk
from bench.stats import Array
from workloads.base import ProgramSet
from workloads.dag import ProgramDag
from workloads.script import ThinkOp, ToolOp

AGES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Quantiles of the quantity at which its residual life is shown."""
FEW = 20
"""Fewer programs left than this give no mean residual life."""
CHANGE = 0.1
"""Relative change up to which residual life counts as flat."""
SURE = 2.0
"""Standard errors a change must exceed: the last ages are those of few programs."""

_MEANING = {
    "rises": "who got far has even more to go: an argument for least attained service over arrival order",
    "falls": "who got far is nearly done: an argument against preempting by least attained service",
    "flat": "what was received says little about what is left (memoryless): no case for or against "
    "least attained service",
    "unclear": "the change is within its noise: more programs (-n) would tell",
    "too few programs": f"needs at least {FEW} programs at each age",
}


def stats(programs: ProgramSet) -> dict[str, Any]:
    """Counts, distributions, prefix sharing and residual life; a dry run of every program."""
    values: dict[str, list[float]] = {name: [] for name in _NAMES}
    hits = walk(programs.programs, lambda dag: _collect(dag, values))
    arrays = {name: np.asarray(v, dtype=np.float64) for name, v in values.items()}
    prompt = int(arrays["prompt tokens per call"].sum())
    left_out = sum(programs.skipped.values())
    caveat = {"caveat": f"{left_out} skipped, so the longest sessions may be missing" if left_out else ""}
    return {
        "name": programs.name,
        "digest": programs.digest,
        "parameters": dict(programs.parameters),
        "programs": len(programs.programs),
        "calls": int(arrays["calls per program"].sum()),
        "read": programs.read,
        "skipped": dict(programs.skipped),
        "repaired": dict(programs.repaired),
        "where": dict(programs.where),
        "distributions": {name: describe(v) for name, v in arrays.items() if v.size},
        "prefix": {"optimum": hits / prompt if prompt else None, "hit_tokens": hits, "prompt_tokens": prompt},
        "residual_life": [
            residual_life(arrays["output tokens per program"], "output tokens") | caveat,
            residual_life(arrays["calls per program"], "calls") | caveat,
        ],
    }


_NAMES = (
    "calls per program",
    "threads per program",
    "prompt tokens per call",
    "output tokens per call",
    "output tokens per program",
    "longest context per program",
    "tool s per use",
    "think s per wait",
    "tool s per program",
)


def _collect(dag: ProgramDag, values: dict[str, list[float]]) -> None:
    values["calls per program"].append(len(dag.calls))
    values["threads per program"].append(dag.threads)
    values["prompt tokens per call"] += [c.prompt_tokens for c in dag.calls]
    values["output tokens per call"] += [c.output_tokens for c in dag.calls]
    values["output tokens per program"].append(dag.total_output)
    values["longest context per program"].append(dag.longest)
    values["tool s per program"].append(dag.tool_s)
    for op in dag.script.walk():
        if isinstance(op, ToolOp):
            values["tool s per use"].append(op.work_s)
        elif isinstance(op, ThinkOp):
            values["think s per wait"].append(op.seconds)


def describe(values: Array) -> dict[str, float]:
    """n, mean, percentiles and maximum of a sample."""
    p50, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99])
    return {
        "n": float(values.size),
        "mean": float(values.mean()),
        "p50": float(p50),
        "p90": float(p90),
        "p99": float(p99),
        "max": float(values.max()),
    }


def residual_life(values: Array, quantity: str) -> dict[str, Any]:
    """Mean residual life of a program's total: E[X - x | X > x] at ages x.

    ``hazard``: share of the programs alive at an age that end before the next
    row's; ``error``: standard error of ``mean_left``. The verdict compares the
    oldest age that FEW programs reach with age 0: "flat" up to CHANGE, "unclear"
    where the change is below SURE standard errors. Programs that a reader skipped
    are not in ``values``: skipping the longest makes residual life fall.
    """
    ages = sorted({0.0, *(float(np.quantile(values, q)) for q in AGES[1:])}) if values.size else []
    rows = [_row(values, age, after) for age, after in pairwise([*ages, np.inf])]
    verdict = _verdict(rows)
    return {"quantity": quantity, "verdict": verdict, "explanation": _MEANING[verdict], "rows": rows}


def _row(values: Array, age: float, after: float) -> dict[str, float]:
    alive = values[values > age]
    return {
        "age": age,
        "alive": float(alive.size),
        "mean_left": float((alive - age).mean()) if alive.size else np.nan,
        "error": float(alive.std(ddof=1)) / math.sqrt(alive.size) if alive.size > 1 else np.nan,
        "hazard": float((alive <= after).mean()) if alive.size else np.nan,
    }


def _verdict(rows: Sequence[dict[str, float]]) -> str:
    enough = [row for row in rows if row["alive"] >= FEW]
    if len(enough) < 3:
        return "too few programs"
    first, last = enough[0], enough[-1]
    change = last["mean_left"] / first["mean_left"] - 1.0
    noise = math.hypot(first["error"], last["error"]) / first["mean_left"]
    if SURE * noise > max(abs(change), CHANGE):
        return "unclear"
    if abs(change) <= CHANGE:
        return "flat"
    return "rises" if change > 0 else "falls"
