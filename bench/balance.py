"""How even the engines' memory is used, and what programs that change engines cost."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from bench.metrics import Numbers

UNEVEN = 0.2
"""ThunderAgent counts the minutes in which two nodes' memory differs by more than this (its Fig. 2)."""


def gaps(samples: pd.DataFrame, kv_blocks: int) -> pd.DataFrame:
    """Over time: ``time``, ``s`` (until the next sample; 0 for the last) and ``gap``, the largest less the
    smallest share of KV in use among the engines.

    An engine is as its last sample says; before its first one nothing is in use.
    """
    used = samples.pivot_table(index="time", columns="engine", values="kv_used", aggfunc="last")
    used = used.sort_index().ffill().fillna(0.0) / kv_blocks
    seconds = np.append(np.diff(used.index.to_numpy(dtype=float)), 0.0)[: len(used)]
    return pd.DataFrame(
        {"time": used.index.to_numpy(), "s": seconds, "gap": (used.max(axis=1) - used.min(axis=1)).to_numpy()}
    )


def imbalance(samples: pd.DataFrame, kv_blocks: int) -> Numbers:
    """``mean`` and ``max`` of the gap, and ``minutes_over_20``, ``share_over_20``: the time in which it is
    above a fifth. NaN for one engine. As fine as the samples are (10 s on virtual time)."""
    if samples.engine.nunique() < 2:
        return dict.fromkeys(("mean", "max", "minutes_over_20", "share_over_20"), math.nan)
    found = gaps(samples, kv_blocks)
    whole, uneven = float(found.s.sum()), float(found.s[found.gap > UNEVEN].sum())
    return {
        "mean": float((found.gap * found.s).sum()) / whole if whole else math.nan,
        "max": float(found.gap.max()),
        "minutes_over_20": uneven / 60,
        "share_over_20": uneven / whole if whole else math.nan,
    }


def moved(rows: pd.DataFrame) -> Numbers:
    """Calls that ran on another engine than their thread's call before (``rows`` of ``kv_cost.chains``).

    ``calls``, ``programs``, ``calls_share`` (of those with a call before) and ``reprefill_tokens``: what
    they had left there and computed again. ``lost_tokens``: the same of all calls, whyever they lost it.
    """
    again = rows[rows.before_engine.notna()]
    away = again[again.engine != again.before_engine]
    return {
        "calls": float(len(away)),
        "programs": float(away.program.nunique()),
        "calls_share": len(away) / len(again) if len(again) else 0.0,
        "reprefill_tokens": float(away.lost.sum()),
        "lost_tokens": float(rows.lost.sum()),
    }
