"""``bench trace stats --html``: the same numbers as frames for figures, and one page around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bench.manifest import versions
from bench.stats import Array
from bench.trace_survey import Survey
from bench.trace_tails import LAWS

POINTS = 160
"""Points of a curve."""


def frames(found: Survey, stats: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Frames for ``reports.trace_figures``: lengths, laws, arrivals, prefix, residual."""
    data = {
        "lengths": _lengths(found, stats),
        "laws": _laws(found, stats),
        "arrivals": _arrivals(found.arrivals),
        "prefix": pd.DataFrame(stats["prefix"]["bins"] if stats["prefix"]["hit_tokens"] else []),
        "residual": _residual(stats),
    }
    badge = badge_of(stats)
    return {name: frame.assign(badge=badge) if len(frame) else frame for name, frame in data.items()}


def badge_of(stats: Mapping[str, Any]) -> str:
    """What kind of numbers these are."""
    if stats["format"]:
        return f"recorded data: {stats['name']}, read as {stats['format']}"
    return f"generated programs: {stats['name']} (nothing was run)"


def survival(values: Array) -> tuple[Array, Array]:
    """Points (x, share of values >= x) of positive values, at most POINTS, evenly spaced in log rank."""
    ordered = np.sort(values[values > 0])
    if not ordered.size:
        return ordered, ordered
    x, first = np.unique(ordered, return_index=True)
    share = 1.0 - first / ordered.size
    if x.size > POINTS:
        wanted = np.geomspace(share[-1], 1.0, POINTS)
        places = np.unique(np.searchsorted(-share, -wanted).clip(0, x.size - 1))
        x, share = x[places], share[places]
    return x, share


def _lengths(found: Survey, stats: Mapping[str, Any]) -> pd.DataFrame:
    rows = []
    for name in stats["distributions"]:
        x, share = survival(found.values[name])
        if x.size > 1:
            rows.append(pd.DataFrame({"quantity": name, "x": x, "share": share}))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def _laws(found: Survey, stats: Mapping[str, Any]) -> pd.DataFrame:
    """The fitted laws where the data are, as shares of the positive values."""
    rows = []
    by_name = {law.name: law for law in LAWS}
    for name, fit in stats["fits"].items():
        values = found.values[name]
        if not fit["laws"] or not (values > 0).any():
            continue
        x = np.geomspace(values[values > 0].min(), values.max(), 60)
        step = 0.5 if np.all(values == np.round(values)) else 0.0
        for row in fit["laws"]:
            law = by_name[row["law"]]
            share = 1.0 - law.cdf(x - step, *(row[p] for p in law.parameters))
            rows.append(pd.DataFrame({"quantity": name, "law": law.name, "x": x, "share": share}))
        if fit["tail"]:
            t = fit["tail"]
            x = np.geomspace(t["xmin"], values.max(), 30)
            share = t["share"] * (x / t["xmin"]) ** (1.0 - t["alpha"])
            rows.append(pd.DataFrame({"quantity": name, "law": "Pareto tail", "x": x, "share": share}))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def _arrivals(times: Array | None) -> pd.DataFrame:
    """``cumulative`` programs by time, and ``gap`` survival next to that of Poisson arrivals."""
    if times is None or times.size < 3 or times[-1] <= times[0]:
        return pd.DataFrame()
    places = np.unique(np.linspace(0, times.size - 1, 2 * POINTS).astype(int))
    count = pd.DataFrame({"curve": "cumulative", "x": times[places], "y": places + 1.0})
    gaps = np.diff(times)
    x, share = survival(gaps)
    gap = pd.DataFrame({"curve": "gap", "x": x, "y": share * float((gaps > 0).mean())})
    grid = np.geomspace(x.min(), x.max(), 60)
    model = pd.DataFrame({"curve": "poisson", "x": grid, "y": np.exp(-grid / gaps.mean())})
    return pd.concat([count, gap, model], ignore_index=True)


def _residual(stats: Mapping[str, Any]) -> pd.DataFrame:
    rows = [
        {"quantity": table["quantity"], "verdict": table["verdict"], **row}
        for table in stats["residual_life"]
        for row in table["rows"]
        if row["alive"] > 1
    ]
    return pd.DataFrame(rows)


def page(found: Survey, stats: Mapping[str, Any], command: str) -> str:
    """The page as HTML, everything inside."""
    from reports.trace_page import render

    provenance = {
        "badge": badge_of(stats),
        "This page": {"command": command, **versions()},
        "Workload": {
            "name": stats["name"],
            "digest": stats["digest"],
            **{str(k): v for k, v in stats["parameters"].items() if not isinstance(v, Mapping)},
        },
        "Skipped": [_line(stats, "skipped", reason) for reason in stats["skipped"]] or ["nothing"],
        "Repaired": [_line(stats, "repaired", reason) for reason in stats["repaired"]] or ["nothing"],
    }
    return render(stats, frames(found, stats), provenance)


def _line(stats: Mapping[str, Any], word: str, reason: str) -> str:
    where = stats["where"].get(reason, "")
    return f"{stats[word][reason]:,} x {reason}" + (f" ({where})" if where else "")
