"""How bad the worst turn of a session is: what users remember, and means over calls hide."""

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
POINTS = 101


def tabulate(data: Data) -> pd.DataFrame:
    """Per system: the longest turn (s) of the ``percent`` % of sessions with the shortest; seeds together."""
    rows = data["worst_turns"]
    rows = rows[np.isfinite(rows.worst.astype(float))]
    parts = []
    for values, part in rows.groupby(KEYS, sort=False):
        at = np.linspace(0, 1, min(POINTS, len(part)))
        found = pd.DataFrame({"percent": 100 * at, "worst_s": np.quantile(part.worst, at), "n": len(part)})
        parts.append(found.assign(**dict(zip(KEYS, values, strict=True))))
    return drawn(pd.concat(parts, ignore_index=True)) if parts else pd.DataFrame()


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A panel per workload, model and load."""
    return paint_sets(table, _panel)


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    for system, mark in systems.items():
        line = rows[rows.system == system]
        ax.plot(line.worst_s, line.percent, color=mark.color, linestyle=mark.dash, marker=mark.marker,
                markersize=mark.size, markevery=max(1, len(line) // 6), linewidth=mark.width)  # fmt: skip
    if (rows.worst_s > 0).all():
        ax.set_xscale("log")
        theme.plain_numbers(ax.xaxis)
    ax.set_ylim(0, 101)
    ax.set_xlabel("worst turn of a session (s)")
    ax.set_ylabel("% of sessions")


FIGURE = Figure(
    name="worst_turns",
    title="The worst turn of each session",
    needs=("worst_turns",),
    caption="For each session the longest time from a call to its reply, holds at the gate and queueing "
    "included; the share of sessions whose worst turn is at most that long, all seeds together. Further left "
    "is better; a long tail to the right are sessions that a policy let starve.",
    tabulate=tabulate,
    paint=paint,
)
