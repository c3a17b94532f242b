"""Whom a gate holds: the longest hold of sessions by how long they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.figure import Data, Figure
from reports.loads import drawn, sets
from reports.seeds import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

KEYS = ["workload", "model", "load", "system", "bin"]
ROOM = 1.7
"""Height of a panel over its highest mean; intervals of few seeds would need far more."""
READINGS = {
    "hold": ("longest hold of a session (s)", 1.0),
    "long_share": ("sessions held over 60 s (%)", 100.0),
}


def tabulate(data: Data) -> pd.DataFrame:
    """Per system and size of session: mean over seeds with a t interval, of both readings."""
    rows = data["holds"]
    parts = []
    for name in READINGS:
        found = over_seeds(rows, KEYS, name).assign(reading=name)
        means = rows.groupby(KEYS, sort=False).agg(context=("context", "mean"), n=("n", "sum"))
        parts.append(found.merge(means.reset_index(), on=KEYS))
    table = pd.concat(parts, ignore_index=True)
    kept = np.isfinite(table[["value", "context"]].astype(float)).all(axis=1)
    table = table[kept].reset_index(drop=True)
    return drawn(table) if len(table) else table


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Columns are workloads, models and loads; rows the two readings."""
    groups = sets(table[table.drawn])
    systems = theme.marks(table[table.drawn].system)
    fig, axes = theme.panels(len(READINGS), len(groups), share_y=False)
    for j, (where, rows) in enumerate(groups.items()):
        for i, (name, (label, scale)) in enumerate(READINGS.items()):
            _panel(axes[i, j], rows[rows.reading == name], systems, scale)
            axes[i, j].set_ylabel(label)
        theme.name_panel(axes[0, j], *where)
    theme.legend(fig, systems)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark], scale: float) -> None:
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("context")
        ends = np.vstack([line["value"] - line.low, line.high - line["value"]]).astype(float)
        ends = np.minimum(np.nan_to_num(ends).clip(min=0), np.vstack([line["value"], [np.inf] * len(line)]))
        ax.errorbar(line.context / 1000, scale * line["value"], yerr=scale * ends, color=mark.color,
                    linestyle=mark.dash, marker=mark.marker, markersize=mark.size, linewidth=mark.width,
                    elinewidth=0.8, capsize=2)  # fmt: skip
    ax.set_ylim(0, ROOM * max(1e-3, scale * float(rows["value"].max())))
    ax.set_xlabel("session's longest context (1,000 tokens)")


FIGURE = Figure(
    name="holds",
    title="Holds at the gate by size of session",
    needs=("holds",),
    caption="Sessions in six groups of about equal number by the longest context they reach, the same groups "
    "for every system of a workload; systems that held nobody are left out. Above: the mean of the sessions' "
    "longest hold; below: the share of sessions of which some call was held for more than a minute. Means "
    "over seeds with 95 % t intervals (cut at the panel's top). A line that rises to the right: "
    "the gate makes long sessions wait.",
    tabulate=tabulate,
    paint=paint,
)
