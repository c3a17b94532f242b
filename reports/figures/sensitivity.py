"""Which constant decides: mean latency with one knob changed at a time, against the default."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import distinct
from reports.figure import Data, Figure
from reports.seeds import ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

ROW = 0.155
"""Height of a row (inches)."""


def tabulate(data: Data) -> pd.DataFrame:
    """One row per workload, knob and value, knobs with the largest effect first.

    ``ratio`` is the geometric mean over seeds of latency / latency at the default.
    """
    frame = data["sensitivity"]
    rows = []
    for values, part in frame.groupby(["workload", "knob", "value"], sort=False):
        ratio, low, high = ratio_interval(part.ratio_to_default.tolist())
        given = [float(part[c].iloc[0]) if c in part else math.nan for c in ("low", "high")]
        if all(map(math.isfinite, given)):
            low, high = given
        rows.append([*values, bool(part.default.iloc[0]), ratio, low, high, len(part)])
    columns = ["workload", "knob", "value", "default", "ratio", "low", "high", "seeds"]
    table = pd.DataFrame(rows, columns=columns)
    table = table[np.isfinite(table.ratio.astype(float)) & ((table.knob != table["value"]) | ~table.default)]
    effect = np.log(table.ratio.astype(float)).abs().groupby([table.workload, table.knob]).transform("max")
    order = {w: i for i, w in enumerate(distinct(table, "workload"))}
    table = table.assign(effect=effect, place=table.workload.map(order))
    table = table.sort_values(["place", "effect", "knob"], ascending=[True, False, True], kind="stable")
    return table.drop(columns="place").reset_index(drop=True)


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """One panel per workload; a row per value of a knob, the default at the line."""
    workloads = distinct(table, "workload")
    most = max(len(part) for _, part in table.groupby("workload"))
    fig, axes = theme.panels(1, len(workloads), share_y=False, size=(3.4, ROW * most + 0.8))
    for ax, workload in zip(axes[0], workloads, strict=True):
        _panel(ax, table[table.workload == workload].reset_index(drop=True))
        ax.set_title(str(workload))
    return fig


def _panel(ax: Any, rows: pd.DataFrame) -> None:
    y = rows.index.to_numpy() + 0.6 * (rows.knob.ne(rows.knob.shift()).cumsum().to_numpy() - 1)
    ax.axvline(1.0, color="black", linewidth=0.9)
    low, high = rows.low.fillna(rows.ratio), rows.high.fillna(rows.ratio)
    color = theme.MARKS["atlas"].color
    ax.hlines(y, low, high, color=color, linewidth=1.0)
    for default, face in ((False, color), (True, "white")):
        part = (rows.default == default).to_numpy()
        ax.plot(rows.ratio[part], y[part], linestyle="none", marker="o", color=color, markerfacecolor=face,
                markersize=4)  # fmt: skip
    names = [f"{k} = {v}" for k, v in zip(rows.knob, rows["value"], strict=True)]
    ax.set_yticks(y, names)
    ax.tick_params(axis="y", length=0, labelsize=6.5)
    ax.set_ylim(y.max() + 0.7, y.min() - 0.7)
    ax.set_xlabel("latency / latency at default (ratio)")


FIGURE = Figure(
    name="sensitivity",
    title="Which constant decides what",
    needs=("sensitivity",),
    caption="Mean latency with one knob changed at a time over the latency at the default (hollow mark, "
    "black line), paired over seeds, with its 95 % interval; knobs with the largest effect first. Right of "
    "the line is slower.",
    tabulate=tabulate,
    paint=paint,
)
