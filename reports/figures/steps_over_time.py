"""Steps a minute over the run: a closed loop ages, so a window is a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.figure import Data, Figure
from reports.loads import drawn
from reports.set_panels import paint_sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

KEYS = ["workload", "model", "load", "system"]


def tabulate(data: Data) -> pd.DataFrame:
    """Per system: the mean over seeds of each of the equal spans of a run, at the mean of their middles."""
    rows = data["steps_over_time"]
    rows = rows[np.isfinite(rows[["minute", "per_min"]].astype(float)).all(axis=1)]
    rows = rows.assign(span=rows.groupby([*KEYS, "seed"]).cumcount())
    table = rows.groupby([*KEYS, "span"], sort=False).agg(
        minute=("minute", "mean"), per_min=("per_min", "mean"), seeds=("seed", "nunique")
    )
    table = table.reset_index()
    return drawn(table) if len(table) else table


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A panel per workload, model and load."""
    return paint_sets(table, _panel, share_y=False)


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("minute")
        ax.plot(line.minute, line.per_min, color=mark.color, linestyle=mark.dash, marker=mark.marker,
                markersize=0.8 * mark.size, markevery=3, linewidth=mark.width)  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.set_xlabel("time (min)")
    ax.set_ylabel("steps per minute")


FIGURE = Figure(
    name="steps_over_time",
    title="Steps per minute over the run",
    needs=("steps_over_time",),
    caption="Calls that finish per minute in 24 equal spans of each run, from the first arrival to the last "
    "end, means over seeds. All systems do the same work, so a line that ends earlier is faster on the "
    "whole; where lines cross, a window decides who wins. The last spans are the drain.",
    tabulate=tabulate,
    paint=paint,
)
