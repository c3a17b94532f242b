"""Prefix-cache hits against what a cache that never evicts would reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.figure import Data, Figure
from reports.loads import panels_of_sets, places
from reports.seeds import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

KEYS = ("model", "workload", "system", "rate", "load")
OPTIMUM = "infinite cache"
BEST = "#c9c9c9"


def tabulate(data: Data) -> pd.DataFrame:
    """One row per system and load: hit rate with its interval over seeds, and the optimum.

    ``place``: the arrival rate, or programs at a time.
    """
    hits = data["hits"]
    keys = [key for key in KEYS if key in hits]
    table = over_seeds(hits, keys, "hit_rate")
    table["optimum"] = over_seeds(hits, keys, "optimum")["value"]
    table["place"] = places(table)
    return table[np.isfinite(table["value"].astype(float))].reset_index(drop=True)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A panel per workload and model."""
    from matplotlib.lines import Line2D

    systems = theme.marks(table.system)
    fig, panels = panels_of_sets(table, share_y=True)
    for (workload, model), ax in panels.items():
        rows = table[(table.workload == workload) & (table.model == model)]
        few = rows.place.nunique() == 1 and not np.isfinite(rows.rate).any()
        (_one_load if few else _over_loads)(ax, rows, systems)
        ax.set_ylim(0, 103)
        ax.set_ylabel("prefix hits (% of prompt tokens)")
        theme.name_panel(ax, workload, model)
    theme.legend(fig, systems, [(Line2D([], [], color=BEST, linewidth=5), OPTIMUM)])
    return fig


def _over_loads(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    """Lines over the arrival rate, or over programs at a time."""
    best = rows.groupby("place").optimum.mean()
    at = best.index if len(best) > 1 else [0.9 * best.index[0], 1.1 * best.index[0]]
    ax.plot(at, np.full(len(at), 100 * best), color=BEST, linewidth=5, zorder=1)
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("place")
        _draw(ax, line, line.place, mark)
    rated = np.isfinite(rows.rate).all()
    ax.set_xlabel("arrival rate (programs/s)" if rated else "programs at a time")


def _one_load(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    """One load that has no rate: systems side by side."""
    here = [system for system in systems if system in set(rows.system)]
    for k, system in enumerate(here):
        line = rows[rows.system == system]
        ax.hlines(100 * line.optimum, k - 0.4, k + 0.4, color=BEST, linewidth=5, zorder=1)
        _draw(ax, line, pd.Series(float(k), line.index), systems[system])
    ax.set_xticks([])
    ax.set_xlim(-0.7, len(here) - 0.3)
    load = str(rows.load.iloc[0]) if "load" in rows else "no arrival rate"
    ax.set_xlabel(f"systems in the legend's order ({load})")


def _draw(ax: Any, line: pd.DataFrame, x: pd.Series, mark: theme.Mark) -> None:
    error = np.nan_to_num(np.vstack([line["value"] - line.low, line.high - line["value"]]).astype(float))
    ax.errorbar(x, 100 * line["value"], yerr=100 * error, color=mark.color, linestyle=mark.dash,
                marker=mark.marker, markersize=mark.size, linewidth=mark.width,
                elinewidth=0.8, capsize=2)  # fmt: skip


FIGURE = Figure(
    name="kv_hits",
    title="Prefix-cache hits against an infinite cache",
    needs=("hits",),
    caption="Prompt tokens found in the prefix cache at calls' first admissions, over prompt tokens of the "
    "admitted calls; means over seeds with 95 % t intervals. Grey: a cache that never evicts, from a dry "
    "run of the same programs. Without an arrival rate: over programs at a time, or systems side by side.",
    tabulate=tabulate,
    paint=paint,
)
