"""What a program set looks like before anything serves it (``bench trace stats``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from bench.stats import Array
from bench.trace_doubts import doubts
from bench.trace_survey import (
    CALLS,
    NEW,
    OUTPUT,
    PROMPT,
    THINK,
    THREADS,
    TOOL,
    TOTAL_OUTPUT,
    Survey,
    survey,
)
from bench.trace_tails import KS_5_PERCENT, tails
from workloads.base import ProgramSet

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


FITTED = (CALLS, NEW, OUTPUT, TOTAL_OUTPUT, TOOL, THINK)
"""What heavy-tail fits are made of."""
SHORTEST_BIN = 256
"""Upper edge (tokens) of the first bin of prompt lengths; each further bin is twice as wide."""


def stats(programs: ProgramSet) -> dict[str, Any]:
    """Counts, distributions, arrivals, prefix sharing, fits, residual life and doubts."""
    return stats_of(survey(programs))


def stats_of(found: Survey) -> dict[str, Any]:
    """``stats`` of a set that was surveyed already."""
    programs, values = found.programs, found.values
    left_out = sum(programs.skipped.values())
    caveat = {"caveat": f"{left_out} skipped, so the longest sessions may be missing" if left_out else ""}
    return {
        "name": programs.name,
        "format": programs.parameters.get("format", "") if programs.read else "",
        "digest": programs.digest,
        "parameters": dict(programs.parameters),
        "programs": len(programs.programs),
        "calls": int(values[CALLS].sum()),
        "forks": found.forks,
        "output_tokens": int(values[OUTPUT].sum()),
        "read": programs.read,
        "skipped": dict(programs.skipped),
        "repaired": dict(programs.repaired),
        "where": dict(programs.where),
        "doubts": doubts(found),
        "distributions": {name: describe(v) for name, v in values.items() if v.size and _tells(name, v)},
        "arrivals": arrivals(found.arrivals),
        "prefix": prefix(found),
        "fits": {name: tails(values[name]) for name in FITTED if values[name].size},
        "residual_life": [
            residual_life(values[TOTAL_OUTPUT], "output tokens") | caveat,
            *([residual_life(values[CALLS], "calls") | caveat] if values[CALLS].max(initial=0) > 1 else []),
        ],
    }


def _tells(name: str, values: Array) -> bool:
    """Whether a row says anything: threads that are always 1 and tools never used do not."""
    return bool(values.max() > 1) if name == THREADS else bool(values.any())


def arrivals(times: Array | None) -> dict[str, Any] | None:
    """Recorded arrivals: rate (programs/s), CV of the gaps, and how far they are from Poisson.

    ``ks_poisson``: distance of the gaps from an exponential of the same mean; ``cv_error``: its
    standard error if the gaps are independent. None where nothing was recorded; ``span_s`` alone
    is 0 where all arrive at once.
    """
    if times is None:
        return None
    if times.size < 3 or times[-1] <= times[0]:
        return {"n": int(times.size), "span_s": float(times[-1] - times[0])}
    gaps = np.diff(times)
    mean, n = float(gaps.mean()), gaps.size
    ordered, share = np.sort(gaps), np.arange(1, n + 1) / n
    model = 1.0 - np.exp(-ordered / mean)
    cv = float(gaps.std(ddof=1)) / mean
    jack = _cv_without(gaps)
    return {
        "n": int(times.size),
        "span_s": float(times[-1] - times[0]),
        "rate": 1.0 / mean,
        "cv": cv,
        "cv_error": float(np.sqrt((n - 1) / n * ((jack - jack.mean()) ** 2).sum())),
        "together": float((gaps == 0).mean()),
        "gaps": describe(gaps),
        "ks_poisson": float(max(np.abs(model - share).max(), np.abs(model - share + 1 / n).max())),
        "critical": KS_5_PERCENT / math.sqrt(n),
        "fits": tails(gaps),
    }


def _cv_without(gaps: Array) -> Array:
    """The CV without each of the gaps in turn."""
    n = gaps.size - 1
    total, squares = gaps.sum() - gaps, (gaps**2).sum() - gaps**2
    means = total / n
    with np.errstate(all="ignore"):
        found: Array = np.sqrt(np.maximum(squares / n - means**2, 0.0)) / means
    return np.nan_to_num(found)


def prefix(found: Survey) -> dict[str, Any]:
    """Hits of an infinite cache as shares of prompt tokens: in all, and by prompt length (Fig. 7).

    ``own``: what earlier calls of the program left; ``others``: what the programs before it
    left; ``optimum``: the longer of the two, call by call. ``new``: tokens of no earlier prompt
    or reply of the program.
    """
    prompts = found.values[PROMPT]
    total = float(prompts.sum())
    shares = {"optimum": found.optimum, "own": found.own, "others": found.others, "new": found.values[NEW]}
    return {
        **{name: float(hits.sum()) / total if total else None for name, hits in shares.items()},
        "hit_tokens": int(found.optimum.sum()),
        "prompt_tokens": int(total),
        "bins": _bins(prompts, found),
    }


def _bins(prompts: Array, found: Survey) -> list[dict[str, float]]:
    if not prompts.size:
        return []
    number = np.maximum(0, np.ceil(np.log2(prompts / SHORTEST_BIN))).astype(int)
    rows = []
    for k in np.unique(number):
        here = number == k
        tokens = float(prompts[here].sum())
        rows.append(
            {
                "above": float(SHORTEST_BIN * 2.0 ** (k - 1)) if k else 0.0,
                "up_to": float(SHORTEST_BIN * 2.0**k),
                "calls": float(here.sum()),
                "tokens": tokens,
                "own": float(found.own[here].sum()) / tokens,
                "others": float(found.others[here].sum()) / tokens,
                "optimum": float(found.optimum[here].sum()) / tokens,
            }
        )
    return rows


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
