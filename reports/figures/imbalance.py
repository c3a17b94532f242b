"""How unevenly the engines' memory is used over time (ThunderAgent, Fig. 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.figure import Data, Figure
from reports.loads import drawn, sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

UNEVEN = 20.0
SPANS = 24
COLUMNS = ["workload", "model", "load", "system", "seed", "time", "s", "gap"]


def tabulate(data: Data) -> pd.DataFrame:
    """The gap at each sample of the first seed."""
    rows = data["imbalance"][COLUMNS]
    kept = np.isfinite(rows[["time", "s", "gap"]].astype(float)).all(axis=1)
    rows = rows[kept].reset_index(drop=True)
    return drawn(rows) if len(rows) else rows


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Above the gap over time, below how much of the time it is larger than what."""
    groups = sets(table[table.drawn])
    systems = theme.marks(table[table.drawn].system)
    fig, axes = theme.panels(2, len(groups), share_y=False)
    for j, (where, rows) in enumerate(groups.items()):
        for system, mark in systems.items():
            line = rows[rows.system == system].sort_values("time")
            if len(line):
                style: dict[str, Any] = {"color": mark.color, "linestyle": mark.dash, "marker": mark.marker}
                _over_time(axes[0, j], line, style | {"linewidth": mark.width, "markersize": 0.8 * mark.size})
                _larger(axes[1, j], line, style | {"linewidth": mark.width, "markersize": 0.8 * mark.size})
        _frame(axes[0, j], axes[1, j])
        theme.name_panel(axes[0, j], *where)
    theme.legend(fig, systems)
    return fig


def _over_time(ax: Any, line: pd.DataFrame, style: dict[str, Any]) -> None:
    """Means of equal spans."""
    edges = np.linspace(float(line.time.min()), float(line.time.max()) + 1e-9, SPANS + 1)
    span = np.searchsorted(edges, line.time, side="right").clip(1, SPANS) - 1
    sums = pd.DataFrame({"span": span, "s": line.s, "gap": line.gap * line.s}).groupby("span").sum()
    sums = sums[sums.s > 0]
    middle = (edges[:-1] + edges[1:])[sums.index] / 120
    ax.plot(middle, 100 * sums.gap / sums.s, markevery=3, **style)


def _larger(ax: Any, line: pd.DataFrame, style: dict[str, Any]) -> None:
    order = line.sort_values("gap", ascending=False)
    share = 100 * order.s.cumsum() / max(1e-9, float(order.s.sum()))
    ax.plot(100 * order.gap, share, drawstyle="steps-post", markevery=max(1, len(line) // 8), **style)


def _frame(over_time: Any, larger: Any) -> None:
    over_time.axhline(UNEVEN, color=theme.GREY, linewidth=0.8, linestyle=":")
    larger.axvline(UNEVEN, color=theme.GREY, linewidth=0.8, linestyle=":")
    over_time.set_xlabel("time (min)")
    over_time.set_ylabel("gap of KV in use (%)")
    larger.set_xlabel("gap of KV in use (%)")
    larger.set_ylabel("% of the time with a larger gap")
    over_time.set_ylim(0, 101)
    larger.set_ylim(0, 101)
    larger.set_xlim(0, 101)


FIGURE = Figure(
    name="imbalance",
    title="Imbalance of memory between engines",
    needs=("imbalance",),
    caption="The share of KV in use on the fullest engine less that on the emptiest, at the samples of the "
    "event log (every 10 s on virtual time), first seed. Above: means of 24 spans. Below: for how much "
    "of the time the gap is larger. "
    "Dotted: 20 %, above which ThunderAgent counts the minutes as imbalanced (37 of 90 in its Fig. 2).",
    tabulate=tabulate,
    paint=paint,
)
