"""A quantity over programs at a time, one panel per workload, the paper's values hollow beside ours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import distinct
from reports.figure import Data
from reports.seeds import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = ("workload", "model", "system", "place", "open")
MOST_ACROSS = 3


def loop_table(data: Data, quantity: str) -> pd.DataFrame:
    """One row per panel, system and place: the mean over seeds with its interval, and the paper's value.

    A place of which a seed has no value, as its window was cut short, is left out.
    """
    table = over_seeds(data["loop_points"], KEYS, quantity)
    table = table[np.isfinite(table["value"].astype(float))].reset_index(drop=True)
    stated = data.get("loop_paper")
    known: dict[tuple[Any, ...], float] = {}
    if stated is not None and len(stated):
        rows = stated[stated.quantity == quantity]
        known = {(r.workload, r.system, r.place): float(r.value) for r in rows.itertuples()}
    places = zip(table.workload, table.system, table.place, strict=True)
    return table.assign(paper=[known.get(place, math.nan) for place in places])


def paint(table: pd.DataFrame, label: str, factor: float = 1.0) -> Figure:
    """The panels, three in a row; values times ``factor``."""
    from matplotlib.lines import Line2D

    names = distinct(table, "workload")
    across = min(MOST_ACROSS, len(names))
    systems = theme.marks(table.system)
    fig, axes = theme.panels(math.ceil(len(names) / across), across, share_y=False)
    for k, ax in enumerate(axes.flat):
        if k >= len(names):
            ax.set_axis_off()
            continue
        rows = table[table.workload == names[k]]
        _panel(ax, rows, systems, factor)
        theme.name_panel(ax, names[k], str(rows.model.iloc[0]))
        ax.set_xlabel("programs/s" if bool(rows.open.iloc[0]) else "programs at a time")
        if k % across == 0:
            ax.set_ylabel(label)
    notes = []
    if np.isfinite(table.paper).any():
        hollow = Line2D(
            [], [], color=theme.GREY, marker="o", markerfacecolor="white", linestyle=":", linewidth=0.7
        )
        notes = [(hollow, "hollow: the paper's")]
    theme.legend(fig, systems, notes)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark], factor: float) -> None:
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("place")
        if line.empty:
            continue
        value = factor * line["value"]
        error = factor * np.vstack([line["value"] - line.low, line.high - line["value"]]).astype(float)
        ax.errorbar(line.place, value, yerr=np.nan_to_num(error), color=mark.color, linestyle=mark.dash,
                    marker=mark.marker, markersize=mark.size, linewidth=mark.width, elinewidth=0.8,
                    capsize=2, zorder=3)  # fmt: skip
        ax.plot(line.place, factor * line.paper, color=mark.color, linestyle=":", linewidth=0.7,
                marker=mark.marker, markersize=mark.size, markerfacecolor="white", zorder=2)  # fmt: skip
    highest = factor * float(np.nanmax([rows["value"].max(), rows.paper.max()]))
    ax.set_ylim(0, 1.25 * highest or None)  # two seeds' intervals would flatten everything
