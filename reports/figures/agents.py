"""What agents came to: tasks solved, and how long programs took, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.figure import Data, Figure
from reports.loads import sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PARTS = (("solved", "% of programs solved"), ("latency", "latency of programs (s)"))
"""Columns NAME, NAME_low, NAME_high, and what the axis says."""
COLUMNS = ["workload", "model", "load", "system", "seeds", "programs",
           *(f"{name}{end}" for name, _ in PARTS for end in ("", "_low", "_high"))]  # fmt: skip


def tabulate(data: Data) -> pd.DataFrame:
    """A row per workload, load and system: seeds together."""
    rows = data["agents"][COLUMNS]
    return rows[np.isfinite(rows.solved.astype(float))].reset_index(drop=True)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """A column per workload, model and load: solved above, latency below."""
    groups, systems = sets(table), theme.marks(table.system)
    fig, axes = theme.panels(len(PARTS), len(groups), share_y=False)
    for j, (where, rows) in enumerate(groups.items()):
        theme.name_panel(axes[0, j], *where)
        for i, (name, label) in enumerate(PARTS):
            _panel(axes[i, j], rows, systems, name, label)
    theme.legend(fig, systems)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark], name: str, label: str) -> None:
    here = [system for system in systems if system in set(rows.system)]
    for x, system in enumerate(here):
        mark, part = systems[system], rows[rows.system == system].iloc[:1]
        value, low, high = (part[f"{name}{end}"].astype(float) for end in ("", "_low", "_high"))
        if np.isfinite(low).all() and np.isfinite(high).all():
            ax.vlines([x], low, high, color=mark.color, linewidth=1.0)
        ax.plot([x], value, linestyle="none", marker=mark.marker, color=mark.color)
    ax.set_xticks([])
    ax.set_xlim(-0.5, max(1, len(here)) - 0.5)
    ax.set_ylim(0, 105 if name == "solved" else 1.1 * _top(rows))
    ax.set_xlabel("systems")
    ax.set_ylabel(label)


def _top(rows: pd.DataFrame) -> float:
    """The highest that is drawn (s); 1 if nothing is."""
    drawn = rows[["latency", "latency_high"]].to_numpy(dtype=float)
    return float(np.nanmax(drawn)) if np.isfinite(drawn).any() else 1.0


FIGURE = Figure(
    name="agents",
    title="What agents came to",
    needs=("agents",),
    caption="Above: programs whose task was solved, all seeds together, with Wilson's 95 % interval. Below: "
    "mean time from a program's begin to its end, of those that finished; the 95 % interval is over seeds "
    "where there are several, else within the run where there are enough programs. Systems have the same "
    "tasks.",
    tabulate=tabulate,
    paint=paint,
)
