"""Prefix-cache hits against what a cache that never evicts would reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import distinct
from reports.figure import Data, Figure
from reports.seeds import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

KEYS = ("model", "workload", "system", "rate")
OPTIMUM = "infinite cache"
BEST = "#c9c9c9"


def tabulate(data: Data) -> pd.DataFrame:
    """One row per system and rate: hit rate with its interval over seeds, and the optimum."""
    hits = data["hits"]
    table = over_seeds(hits, KEYS, "hit_rate")
    table["optimum"] = over_seeds(hits, KEYS, "optimum")["value"]
    return table[np.isfinite(table["value"].astype(float))].reset_index(drop=True)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Rows are models, columns are workloads."""
    from matplotlib.lines import Line2D

    models, workloads = distinct(table, "model"), distinct(table, "workload")
    systems = theme.marks(table.system)
    fig, axes = theme.panels(len(models), len(workloads))
    for i, model in enumerate(models):
        for j, workload in enumerate(workloads):
            here = table[(table.model == model) & (table.workload == workload)]
            _panel(axes[i, j], here, systems)
            theme.name_panel(axes[i, j], workload, model)
    best = Line2D([], [], color=BEST, linewidth=5)
    theme.legend(fig, systems, [(best, OPTIMUM)])
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    if rows.empty:
        ax.set_axis_off()
        return
    rated = np.isfinite(rows.rate).all()
    rows = rows if rated else rows.assign(rate=np.arange(1.0, len(rows) + 1))
    best = rows.groupby("rate").optimum.mean()
    ends = (
        best if len(best) > 1 else pd.Series([best.iloc[0]] * 2, [0.9 * best.index[0], 1.1 * best.index[0]])
    )
    ax.plot(ends.index, 100 * ends, color=BEST, linewidth=5, zorder=1)
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("rate")
        error = np.nan_to_num(np.vstack([line["value"] - line.low, line.high - line["value"]]).astype(float))
        ax.errorbar(line.rate, 100 * line["value"], yerr=100 * error, color=mark.color, linestyle=mark.dash,
                    marker=mark.marker, markersize=mark.size, linewidth=mark.width,
                    elinewidth=0.8, capsize=2)  # fmt: skip
    ax.set_ylim(0, 103)
    ax.set_xlabel("arrival rate (programs/s)" if rated else "run (no arrival rate)")
    ax.set_ylabel("prefix hits (% of prompt tokens)")


FIGURE = Figure(
    name="kv_hits",
    title="Prefix-cache hits against an infinite cache",
    needs=("hits",),
    caption="Prompt tokens found in the prefix cache at calls' first admissions, over prompt tokens of the "
    "admitted calls; means over seeds with 95 % t intervals. Grey: a cache that never evicts, from a dry "
    "run of the same programs.",
    tabulate=tabulate,
    paint=paint,
)
