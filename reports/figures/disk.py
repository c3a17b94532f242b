"""Disk of all sandboxes over time (ThunderAgent, Fig. 2 and 6)."""

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

COLUMNS = ["workload", "model", "load", "system", "seed", "minute", "gb"]


def tabulate(data: Data) -> pd.DataFrame:
    """Every change of the first seed."""
    rows = data["disk"][COLUMNS]
    rows = rows[np.isfinite(rows[["minute", "gb"]].astype(float)).all(axis=1)].reset_index(drop=True)
    return drawn(rows) if len(rows) else rows


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A panel per workload, model and load."""
    return paint_sets(table, _panel)


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("minute", kind="stable")
        ax.plot(line.minute, line.gb, drawstyle="steps-post", color=mark.color, linestyle=mark.dash,
                marker=mark.marker, markersize=0.8 * mark.size, markevery=max(1, len(line) // 6),
                linewidth=mark.width)  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.set_xlabel("time (min)")
    ax.set_ylabel("disk of sandboxes (GB)")


FIGURE = Figure(
    name="disk",
    title="Disk of the sandboxes over time",
    needs=("disk",),
    caption="Disk that the sandboxes of all programs hold, a shared image once, from the decisions of the "
    "event log, first seed, until the last program's end. A sandbox counts from the start of its preparation "
    "to the end of its teardown; one that is never torn down stays.",
    tabulate=tabulate,
    paint=paint,
)
