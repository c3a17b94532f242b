"""What keeping or evicting cost more than the better choice would have, tool by tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.figure import Data, Figure
from reports.loads import drawn, sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

KEYS = ["workload", "model", "load", "system", "tool"]
MOST = 12
"""Tools in a panel, those with the most absences."""
BAR = 0.22
"""Height of a bar (inches)."""


def tabulate(data: Data) -> pd.DataFrame:
    """Per system and tool, all seeds together: absences ``n``, ``kept_share``, and mean ``regret``."""
    rows = data["regrets"]
    rows = rows[np.isfinite(rows[["n", "kept", "evicted", "regret"]].astype(float)).all(axis=1)]
    rows = rows.assign(total=rows.regret * rows.n)
    table = rows.groupby(KEYS, sort=False)[["n", "kept", "evicted", "total"]].sum().reset_index()
    table = table[table.n > 0].reset_index(drop=True)
    table["regret"] = table.total / table.n
    table["kept_share"] = table.kept / (table.kept + table.evicted).where(lambda both: both > 0)
    return drawn(table.drop(columns="total")) if len(table) else table


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A row per workload, model and load: regret, and how often it kept."""
    groups = sets(table[table.drawn])
    groups = {where: _most(rows) for where, rows in groups.items()}
    systems = theme.marks(table[table.drawn].system)
    bars = max(rows.tool.nunique() for rows in groups.values()) * len(systems)
    fig, axes = theme.panels(len(groups), 2, share_y=False, size=(3.1, BAR * bars + 0.9))
    for i, (where, rows) in enumerate(groups.items()):
        _panel(axes[i, 0], rows, systems, "regret", 1.0, "mean regret (blocks x seconds)")
        _panel(axes[i, 1], rows, systems, "kept_share", 100.0, "kept (% of absences)")
        axes[i, 1].set_xlim(0, 101)
        theme.name_panel(axes[i, 0], *where)
    theme.legend(fig, systems)
    return fig


def _most(rows: pd.DataFrame) -> pd.DataFrame:
    counts = rows.groupby("tool").n.sum().sort_values(ascending=False, kind="stable")
    return rows[rows.tool.isin(counts.index[:MOST])]


def _panel(
    ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark], name: str, scale: float, label: str
) -> None:
    tools = sorted(set(rows.tool))
    for k, (system, mark) in enumerate(systems.items()):
        here = rows[rows.system == system].set_index("tool")[name].reindex(tools)
        place = np.arange(len(tools)) + (k - (len(systems) - 1) / 2) * 0.8 / len(systems)
        values = scale * here.to_numpy(dtype=float)
        edge: dict[str, Any] = {"color": mark.color, "markeredgecolor": "#222222", "markeredgewidth": 0.4}
        ax.barh(place, np.nan_to_num(values), height=0.75 / len(systems), color=mark.color)
        ax.plot(values, place, linestyle="none", marker=mark.marker, markersize=mark.size, **edge)
    ax.set_yticks(np.arange(len(tools)), tools)
    ax.tick_params(axis="y", length=0, labelsize=6.5)
    ax.grid(False, axis="y")
    ax.invert_yaxis()
    ax.set_xlabel(label)


FIGURE = Figure(
    name="regrets",
    title="Keep or evict: the regret, tool by tool",
    needs=("regrets",),
    caption="When a thread goes into a tool, a policy keeps its KV or leaves it to the cache. Left: what "
    "that cost more than the better of the two, known once the thread is back (memory it held and others "
    "lacked, or tokens that were computed again), mean per absence over all seeds; 0 is the best there is. "
    "Right: how often it kept. Policies that do not price their choices are not here.",
    tabulate=tabulate,
    paint=paint,
)
