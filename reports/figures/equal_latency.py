"""The rate each system sustains at equal mean latency (Autellix's goal metric)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import distinct
from reports.figure import Data, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def tabulate(data: Data) -> pd.DataFrame:
    """The crossings, with ``at``: the rate that is drawn, and ``open``: "", "above" or "below" it."""
    rows = data["crossings"].reset_index(drop=True)
    places = [_place(*map(float, r)) for r in zip(rows.rate, rows.low, rows.high, strict=True)]
    rows = rows.assign(at=[p[0] for p in places], open=[p[1] for p in places])
    return rows[np.isfinite(rows["at"])].reset_index(drop=True)


def _place(rate: float, low: float, high: float) -> tuple[float, str]:
    """Where to draw a crossing: its rate, or the end of its bracket that is known."""
    if math.isfinite(rate):
        return rate, ""
    if math.isfinite(low) and low > 0 and not math.isfinite(high):
        return low, "above"
    return (high, "below") if math.isfinite(high) else (math.nan, "")


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Rows are models, columns are workloads; latencies side by side, systems next to each other."""
    models, workloads = distinct(table, "model"), distinct(table, "workload")
    systems = theme.marks(table.system)
    fig, axes = theme.panels(len(models), len(workloads), share_y=False)
    for i, model in enumerate(models):
        for j, workload in enumerate(workloads):
            here = table[(table.model == model) & (table.workload == workload)]
            _panel(axes[i, j], here, systems)
            theme.name_panel(axes[i, j], workload, model)
    theme.legend(fig, systems)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    if rows.empty:
        ax.set_axis_off()
        return
    places = {latency: k for k, latency in enumerate(sorted(set(rows.latency)))}
    here = [s for s in systems if s in set(rows.system)]
    for k, system in enumerate(here):
        mark, part = systems[system], rows[rows.system == system]
        x = part.latency.map(places).to_numpy() + 0.7 * ((k + 0.5) / len(here) - 0.5)
        low = np.where(np.isfinite(part.low), part.low, part["at"])
        high = np.where(np.isfinite(part.high), part.high, part["at"])
        ax.vlines(x, low, high, color=mark.color, linewidth=1.0)
        ax.plot(x, part["at"], linestyle="none", marker=mark.marker, color=mark.color)
        for at, rate, side in zip(x, part["at"], part.open, strict=True):
            if side:
                _arrow(ax, at, rate, 14 if side == "above" else -14, mark.color)
    ax.set_xticks(list(places.values()), [f"{latency:g}" for latency in places])
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.set_ylim(0, 1.15 * rows["at"].max())
    ax.grid(False, axis="x")
    ax.set_xlabel("mean latency (s/token)")
    ax.set_ylabel("rate at that latency (programs/s)")


def _arrow(ax: Any, x: float, y: float, points: int, color: str) -> None:
    """From a known end of an open bracket towards where the crossing is."""
    ax.annotate("", xy=(x, y), xytext=(0, points), textcoords="offset points", annotation_clip=False,
                arrowprops={"arrowstyle": "<|-", "color": color, "shrinkA": 0, "shrinkB": 2})  # fmt: skip


FIGURE = Figure(
    name="equal_latency",
    title="Throughput at equal latency",
    needs=("crossings",),
    caption="The arrival rate at which a system's mean latency crosses a value. Vertical lines: the bracket "
    "in which the crossing lies. An arrow up: the latency is not reached at any rate tried, so the rate is "
    "above the mark; down: it is exceeded already at the lowest.",
    tabulate=tabulate,
    paint=paint,
)
